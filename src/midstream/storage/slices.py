"""Reading and writing slices: Arrow files, named by the digest of their bytes.

The IPC *file* format is used because a cut *stream* reads as a shorter valid table. Arrow checks no
integrity itself, so a file that this process did not write is checked against its digest before
anything in it is decoded.
"""

from __future__ import annotations

import hashlib
import re

import pyarrow as pa
from msgspec.structs import replace

from midstream.engine.program import NewSlice
from midstream.errors import CheckpointError
from midstream.state.slices import Slice
from midstream.storage.store import Store

FOLDER = "slices"
_NAME = re.compile(r"[0-9a-f]{64}\.arrow\Z")

# Digests that this process has seen to be right. Slices are immutable, so once is enough.
_verified: set[str] = set()


def write_slice(store: Store, new: NewSlice) -> Slice:
    """Write a slice and complete its description."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, new.table.schema) as writer:
        writer.write_table(new.table)
    data = sink.getvalue()
    digest = hashlib.sha256(data).hexdigest()
    name = f"{digest}.arrow"
    store.put(f"{FOLDER}/{name}", data)
    _verified.add(digest)
    return replace(new.slice, name=name, bytes=data.size, sha256=digest)


def open_slice(store: Store, slice_: Slice) -> pa.Table:
    """The table of a slice, mapped into memory."""
    if not _NAME.match(slice_.name):
        raise CheckpointError("the name of a slice must be a digest", got=repr(slice_.name))
    data = store.read(f"{FOLDER}/{slice_.name}")
    if slice_.sha256 not in _verified:
        if data.size != slice_.bytes or hashlib.sha256(data).hexdigest() != slice_.sha256:
            raise CheckpointError(
                "a slice must have the bytes that its manifest names",
                got=f"{slice_.name} with {data.size} bytes",
                hint="the file is damaged: restore it from a copy of the checkpoint",
            )
        _verified.add(slice_.sha256)
    return pa.ipc.open_file(pa.BufferReader(data)).read_all()
