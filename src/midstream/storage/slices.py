"""Reading and writing slices: Arrow files, named by the digest of their bytes.

The IPC *file* format is used because a cut *stream* reads as a shorter valid table. Arrow checks no
integrity itself, so a file that this run of the query did not write in this process is checked against
its digest before anything in it is decoded.
"""

from __future__ import annotations

import hashlib
import re
from collections import OrderedDict
from collections.abc import Iterable

import pyarrow as pa
from msgspec.structs import replace

from midstream.engine.program import NewSlice
from midstream.errors import CheckpointError
from midstream.state.slices import Slice
from midstream.storage.store import Store

FOLDER = "slices"
_NAME = re.compile(r"[0-9a-f]{64}\.arrow\Z")


class SliceFiles:
    """The slices of one run of a query. What this run wrote or has checked is not checked again."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._verified: set[str] = set()

    def write(self, new: NewSlice) -> Slice:
        """Write a slice and complete its description."""
        sink = pa.BufferOutputStream()
        with pa.ipc.new_file(sink, new.table.schema) as writer:
            writer.write_table(new.table)
        data = sink.getvalue()
        digest = hashlib.sha256(data).hexdigest()
        name = f"{digest}.arrow"
        self._store.put(f"{FOLDER}/{name}", data)
        self._verified.add(digest)
        return replace(new.slice, name=name, bytes=data.size, sha256=digest)

    def open(self, slice_: Slice) -> pa.Table:
        """The table of a slice, mapped into memory."""
        if not _NAME.match(slice_.name):
            raise CheckpointError("the name of a slice must be a digest", got=repr(slice_.name))
        data = self._store.read(f"{FOLDER}/{slice_.name}")
        if data.size != slice_.bytes:
            raise _damaged(slice_, f"{data.size} bytes instead of {slice_.bytes}")
        if slice_.sha256 not in self._verified:
            if hashlib.sha256(data).hexdigest() != slice_.sha256:
                raise _damaged(slice_, "another digest")
            self._verified.add(slice_.sha256)
        try:
            return pa.ipc.open_file(pa.BufferReader(data)).read_all()
        except (pa.ArrowInvalid, OSError) as error:
            raise _damaged(slice_, str(error)) from None

    def forget_all_but(self, slices: Iterable[Slice]) -> None:
        """Forget slices that are no longer in use, so that a long run does not remember them all."""
        self._verified &= {slice_.sha256 for slice_ in slices}


def _damaged(slice_: Slice, what: str) -> CheckpointError:
    return CheckpointError(
        "a slice must have the bytes that its manifest names",
        got=f"{slice_.name} with {what}",
        hint="the file is damaged: restore it from a copy of the checkpoint",
    )


# One per run in each process. Spark's workers outlive queries, and a new run trusts nothing of an old one.
_runs: OrderedDict[str, SliceFiles] = OrderedDict()
_RUNS_KEPT = 32


def slice_files(store: Store, run: str) -> SliceFiles:
    """The slices of a run, as this process knows them; a run without a name is always a new one."""
    files = _runs.pop(run, None) or SliceFiles(store)
    if run:
        _runs[run] = files
        while len(_runs) > _RUNS_KEPT:
            _runs.popitem(last=False)
    return files
