"""Reading and writing slices: Arrow files, named after the lease they were written under and their digest.

    slices/<lease>-<digest>.arrow

Without the lease, two drivers that run the same epoch would write the same names, and one that was fenced
could delete a file that the other has just written and named in its manifest.

The IPC *file* format is used because a truncated *stream* reads as a shorter valid table. Arrow does not
check integrity itself, so a file that this run of the query did not write is checked against its digest
before it is decoded, and validated before it is used. Which files the run wrote is known from the reports of
its own tasks, never from a manifest.
"""

from __future__ import annotations

import hashlib
import re
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
from msgspec.structs import replace

from midstream.engine.program import NewSlice, RunIdentity
from midstream.errors import CheckpointError
from midstream.state.slices import Slice
from midstream.storage.slice_validation import validation_error
from midstream.storage.store import Store

FOLDER = "slices"
_NAME = re.compile(rf"(?:{FOLDER}/)?(?:(\d{{12}})-)?([0-9a-f]{{64}})\.arrow\Z")
_QUERY = b"midstream.query"
"""The metadata key under which a file has the id of its query."""

_UNREADABLE = (
    *(pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowKeyError, pa.ArrowTypeError, pa.ArrowIndexError),
    *(OSError, UnicodeDecodeError),
)
"""The errors that Arrow raises for damaged bytes; not those for a lack of memory."""


@dataclass(frozen=True)
class EncodedSlice:
    """A slice and the bytes of its file."""

    slice: Slice
    data: pa.Buffer


class SliceFiles:
    """Reads and writes the slices of one run of a query in one process.

    Slices that this process has checked are not checked again. Only those that the run began with are checked
    at all, so it remembers no more names than there were then.
    """

    def __init__(self, store: Store, query: str = "", lease: int = 0) -> None:
        """Without the id of a ``query``, slices of any query are opened."""
        self._store = store
        self._query = query
        self._lease = lease
        self._verified: set[str] = set()

    def encode(self, new: NewSlice) -> EncodedSlice:
        """The bytes of a new slice, and its description, which is then complete."""
        data = _arrow_file(_signed(new.table, self._query))
        digest = hashlib.sha256(data).hexdigest()
        name = f"{self._lease:012d}-{digest}.arrow"
        return EncodedSlice(replace(new.slice, name=name, bytes=data.size, sha256=digest), data)

    def write(self, encoded: Sequence[EncodedSlice]) -> None:
        """Write slices, which takes less time together than one by one."""
        self._store.put_all({f"{FOLDER}/{each.slice.name}": each.data for each in encoded})

    def open(self, slice_: Slice, *, ours: bool = False, sparsely: bool = False) -> pa.Table:
        """The table of a slice, mapped into memory; ``ours`` if a task of this run wrote it.

        Of one that is opened ``sparsely`` only those pages are read whose rows are used.
        """
        if digest_in(slice_.name) != slice_.sha256:
            raise CheckpointError("the name of a slice must have its digest", got=repr(slice_.name))
        trusted = ours or slice_.name in self._verified
        # What is checked is read as a whole.
        data = self._store.read(f"{FOLDER}/{slice_.name}", sparsely=sparsely and trusted)
        if data.size != slice_.bytes:
            raise _damaged(slice_, f"{data.size} bytes instead of {slice_.bytes}")
        if not trusted and hashlib.sha256(data).hexdigest() != slice_.sha256:
            raise _damaged(slice_, "another digest")
        try:
            table = pa.ipc.open_file(data).read_all()
            problem = None if trusted else validation_error(slice_, table) or self._foreign(slice_, table)
        except _UNREADABLE:
            raise _damaged(slice_, "bytes that cannot be decoded") from None
        if problem is not None:
            raise _damaged(slice_, problem)
        if not ours:
            self._verified.add(slice_.name)
        return table

    def _foreign(self, slice_: Slice, table: pa.Table) -> str | None:
        """An error text if a slice is of another query; slices of earlier formats have no query id."""
        signed = (table.schema.metadata or {}).get(_QUERY)
        if not self._query or (signed is None and lease_of(slice_.name) == 0):
            return None
        return None if signed == self._query.encode() else "rows of another query"


def digest_in(name: str) -> str | None:
    """The digest in the name of a slice; None if it is no name of a slice."""
    match = _NAME.match(name)
    return match[2] if match else None


def lease_of(name: str) -> int:
    """The lease in the name of a slice; 0 for an earlier format, or if it is no name of a slice."""
    match = _NAME.match(name)
    return int(match[1] or 0) if match else 0


def _signed(table: pa.Table, query: str) -> pa.Table:
    if not query:
        return table
    return table.replace_schema_metadata({**(table.schema.metadata or {}), _QUERY: query.encode()})


def _arrow_file(table: pa.Table) -> pa.Buffer:
    """The bytes of a file, in a buffer of their size: one that grows would copy them repeatedly."""
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


# One per run in each process: Spark's workers outlive queries, and a new run checks all slices again.
_runs: OrderedDict[str, SliceFiles] = OrderedDict()
_RUNS_KEPT = 32


def slice_files(store: Store, writer: RunIdentity) -> SliceFiles:
    """The slice files of a run in this process; a run without a name is always a new one."""
    files = _runs.pop(writer.run, None) or SliceFiles(store, writer.query, writer.lease)
    if writer.run:
        _runs[writer.run] = files
        while len(_runs) > _RUNS_KEPT:
            _runs.popitem(last=False)
    return files
