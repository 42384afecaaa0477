"""Reading and writing slices: Arrow files, named by the digest of their bytes.

The IPC *file* format is used because a cut *stream* reads as a shorter valid table. Arrow checks no
integrity itself, so a file that this run of the query did not write is checked against its digest before
anything in it is decoded, and against its form before anything in it is used.
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
from midstream.storage.form import fault_in
from midstream.storage.store import Store

FOLDER = "slices"
_NAME = re.compile(r"[0-9a-f]{64}\.arrow\Z")


class SliceFiles:
    """The slices of one run of a query, which began with epoch ``began``, as one process knows them.

    What this run wrote, in whatever process, or what this process has checked, is not checked again.
    """

    def __init__(self, store: Store, began: int | None = None) -> None:
        self._store = store
        self._began = began
        self._verified: set[str] = set()

    def write(self, new: NewSlice) -> Slice:
        """Write a slice and complete its description."""
        data = _arrow_file(new.table)
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
        known = slice_.sha256 in self._verified or self._is_ours(slice_)
        if not known and hashlib.sha256(data).hexdigest() != slice_.sha256:
            raise _damaged(slice_, "another digest")
        try:
            table = pa.ipc.open_file(pa.BufferReader(data)).read_all()
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, OSError) as error:
            raise _damaged(slice_, str(error)) from None
        if not known and (fault := fault_in(slice_, table)):
            raise _damaged(slice_, fault)
        self._verified.add(slice_.sha256)
        return table

    def _is_ours(self, slice_: Slice) -> bool:
        """Whether this run wrote it: the last epoch of a slice is the one in which it was written."""
        return self._began is not None and slice_.upper >= self._began

    def forget_all_but(self, slices: Iterable[Slice]) -> None:
        """Forget slices that are no longer in use, so that a long run does not remember them all."""
        self._verified &= {slice_.sha256 for slice_ in slices}


def _arrow_file(table: pa.Table) -> pa.Buffer:
    """The bytes of a file, in a buffer of just their size: one that grows copies them again and again."""
    measure = pa.MockOutputStream()
    with pa.ipc.new_file(measure, table.schema) as writer:
        writer.write_table(table)
    data = pa.allocate_buffer(measure.size())
    with pa.ipc.new_file(pa.FixedSizeBufferWriter(data), table.schema) as writer:
        writer.write_table(table)
    return data


def _damaged(slice_: Slice, what: str) -> CheckpointError:
    return CheckpointError(
        "a slice must have the bytes that its manifest names",
        got=f"{slice_.name} with {what}",
        hint="the file is damaged: restore it from a copy of the checkpoint",
    )


# One per run in each process. Spark's workers outlive queries, and a new run trusts nothing of an old one.
_runs: OrderedDict[str, SliceFiles] = OrderedDict()
_RUNS_KEPT = 32


def slice_files(store: Store, run: str, began: int | None) -> SliceFiles:
    """The slices of a run, as this process knows them; a run without a name is always a new one."""
    files = _runs.pop(run, None) or SliceFiles(store, began)
    if run:
        _runs[run] = files
        while len(_runs) > _RUNS_KEPT:
            _runs.popitem(last=False)
    return files
