"""Slices with the right digest and the wrong form are refused."""

import hashlib
import pickle
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from msgspec.structs import replace

from midstream.aggregate.partials import HASH, PANE
from midstream.engine.payload import make_segments
from midstream.errors import CheckpointError
from midstream.plan.state_id import StateId
from midstream.state.slices import Slice, SliceOwner
from midstream.storage.memory_store import MemoryStore
from midstream.storage.slice_files import SliceFiles


class Odd(pa.ExtensionType):  # type: ignore[misc]  # Arrow ships no types
    """A type that brings code of its own."""

    def __init__(self) -> None:
        super().__init__(pa.int64(), "midstream.tests.odd")

    def __arrow_ext_serialize__(self) -> bytes:
        return b""

    @classmethod
    def __arrow_ext_deserialize__(cls, storage_type: pa.DataType, serialized: bytes) -> pa.ExtensionType:
        return cls()


INDEX = pa.table({"hash": pa.array([1, 2], pa.uint64()), "ref a": [0, 1], "time a": [5, 6]})
ROWS = make_segments(pa.table({"a.v": ["x", "y"]}), [(0, 2, 6)])


def _slice(kind: Any, table: pa.Table | bytes) -> tuple[MemoryStore, Slice]:
    """A store with one slice, and the description that its manifest would have."""
    data = table
    if isinstance(table, pa.Table):
        sink = pa.BufferOutputStream()
        with pa.ipc.new_file(sink, table.schema) as writer:
            writer.write_table(table)
        data = sink.getvalue().to_pybytes()
    assert isinstance(data, bytes)
    digest = hashlib.sha256(data).hexdigest()
    store = MemoryStore()
    store.put(f"slices/{digest}.arrow", data)
    owner = SliceOwner(kind, StateId("a"), (0,), 0)
    return store, Slice(owner, 0, 0, 1, 2, (6,), f"{digest}.arrow", len(data), digest)


def test_a_slice_of_the_right_form_is_read():
    for kind, table in (("index", INDEX), ("payload", ROWS)):
        store, slice_ = _slice(kind, table)
        assert SliceFiles(store).open(slice_) == table


def _wrong_offsets() -> pa.Table:
    """Text whose first value would end far behind its bytes."""
    offsets = pa.array([0, 1 << 30, 2], pa.int32()).buffers()[1]
    text = pa.Array.from_buffers(pa.string(), 2, [None, offsets, pa.py_buffer(b"xy")])
    return make_segments(pa.table({"a.v": text}), [(0, len(text), 6)])


def _nested(kind: pa.DataType) -> pa.Table:
    column = pa.array([None, None], pa.struct([pa.field("x", kind, metadata={"ARROW:extension:name": "y"})]))
    return make_segments(pa.table({"a.v": column}), [(0, len(column), 6)])


FORMS: dict[str, tuple[str, Callable[[], pa.Table]]] = {
    "an index without times": ("index", lambda: INDEX.drop_columns("time a")),
    "an index with a column more": ("index", lambda: INDEX.append_column("x", INDEX["ref a"])),
    "an index with a column twice": ("index", lambda: INDEX.append_column("ref a", INDEX["ref a"])),
    "an index of text": ("index", lambda: INDEX.set_column(2, "time a", pa.array(["x", "y"]))),
    "an index with nulls": ("index", lambda: INDEX.set_column(2, "time a", pa.array([None, 1], pa.int64()))),
    "an index with other rows": ("index", lambda: INDEX.slice(1)),
    "rows without segments": ("payload", lambda: ROWS.replace_schema_metadata(None)),
    "rows with segments that are none": (
        "payload",
        lambda: ROWS.replace_schema_metadata({b"midstream.segments": b"3:abc"}),
    ),
    "rows with segments of other rows": ("payload", lambda: make_segments(ROWS, [(0, 2, 6, 7)])),
    "rows that end behind their bytes": ("payload", _wrong_offsets),
    "rows that are no text": (
        "payload",
        lambda: make_segments(
            pa.table({"a.v": pa.array([b"\xff", b"x"]).view(pa.string())}),
            [(0, 2, 6)],
        ),
    ),
    "a type inside that Arrow does not know": ("payload", lambda: _nested(pa.int64())),
}


@pytest.mark.parametrize("what", FORMS)
def test_a_slice_of_another_form_is_refused(what):
    kind, make = FORMS[what]
    store, slice_ = _slice(kind, make())
    with pytest.raises(CheckpointError, match="a slice must have the bytes that its manifest names"):
        SliceFiles(store).open(slice_)


@pytest.mark.parametrize(
    ("hashes", "panes"),
    [
        ([1, 2, 2], [0, 6, 6]),
        ([1, 9, 2], [0, 6, 6]),
        ([1, 2, 2], [0, 6, 0]),
        ([1, 2, 2], [0, 6, 7]),
        ([1, None, 2], [0, 6, 6]),
    ],
)
def test_partial_aggregates_are_in_the_order_of_their_panes_and_groups(hashes, panes):
    table = pa.table({HASH: pa.array(hashes, pa.uint64()), PANE: pa.array(panes, pa.int64()), "n": [1, 1, 1]})
    store, slice_ = _slice("partial", table)
    slice_ = replace(slice_, rows=table.num_rows)
    if (hashes, panes) == ([1, 2, 2], [0, 6, 6]):
        assert SliceFiles(store).open(slice_) == table
        return
    with pytest.raises(CheckpointError, match="a slice must have the bytes that its manifest names"):
        SliceFiles(store).open(slice_)


@pytest.mark.parametrize("known", [True, False], ids=["known here", "known elsewhere"])
def test_a_slice_with_a_type_that_brings_code_is_refused(known):
    odd = pa.ExtensionArray.from_storage(Odd(), pa.array([5, 6]))
    pa.register_extension_type(Odd())
    try:
        stores = [_slice("index", INDEX.set_column(2, "time a", odd))]
        stores += [_slice("payload", make_segments(pa.table({"a.v": odd}), [(0, len(odd), 6)]))]
        if not known:
            pa.unregister_extension_type("midstream.tests.odd")
        for store, slice_ in stores:
            with pytest.raises(CheckpointError, match="a type that Arrow alone does not know"):
                SliceFiles(store).open(slice_)
    finally:
        if known:
            pa.unregister_extension_type("midstream.tests.odd")


@pytest.mark.parametrize(
    "data", [pickle.dumps([1]), b"", b"ARROW1", b"ARROW1\0\0" + b"\xff" * 64 + b"ARROW1"]
)
def test_a_slice_that_is_no_arrow_file_is_refused(data):
    store, slice_ = _slice("index", data)
    with pytest.raises(CheckpointError, match="is damaged"):
        SliceFiles(store).open(slice_)
