"""Slices are named by their bytes, and refused if these have changed or are of another query."""

import pyarrow as pa
import pytest
from msgspec.structs import replace

from midstream.engine.program import NewSlice, RunIdentity
from midstream.errors import CheckpointError
from midstream.plan.state_id import StateId
from midstream.state.slices import Slice, SliceOwner
from midstream.storage.memory_store import MemoryStore
from midstream.storage.slice_files import SliceFiles, lease_of, slice_files

INDEX = pa.table({"hash": pa.array([1, 2, 3], pa.uint64()), "ref a": [0, 1, 2], "time a": [5, 6, 7]})
NEW = NewSlice(Slice(SliceOwner("index", StateId("a"), (0,), 0), 0, 0, 1, 3, (7,)), INDEX)


def write(files: SliceFiles, new: NewSlice) -> Slice:
    encoded = files.encode(new)
    files.write([encoded])
    return encoded.slice


def test_a_slice_is_named_by_its_bytes_and_read_back():
    store = MemoryStore()
    written = write(SliceFiles(store), NEW)
    assert written.name == f"{0:012d}-{written.sha256}.arrow"
    assert written.bytes == store.read(f"slices/{written.name}").size
    assert write(SliceFiles(store), NEW) == written
    assert SliceFiles(store).open(written) == NEW.table


def test_metadata_of_a_slice_survives():
    table = NEW.table.replace_schema_metadata({b"midstream.segments": b"2:\0\xff"})
    store = MemoryStore()
    written = write(SliceFiles(store), NewSlice(NEW.slice, table))
    assert SliceFiles(store).open(written).schema.metadata == table.schema.metadata


@pytest.mark.parametrize("position", [0, 5, 40, -20, -1])
def test_a_damaged_slice_is_refused(position):
    store = MemoryStore()
    written = write(SliceFiles(store), NEW)
    data = bytearray(store.read(f"slices/{written.name}").to_pybytes())
    data[position] ^= 1
    store.put(f"slices/{written.name}", bytes(data))
    with pytest.raises(CheckpointError, match="must have the bytes that its manifest names"):
        SliceFiles(store).open(written)


def test_a_cut_or_longer_slice_is_refused():
    store = MemoryStore()
    files = SliceFiles(store)
    written = write(files, NEW)
    data = store.read(f"slices/{written.name}").to_pybytes()
    for other in (data[:-1], data + b"\0", b""):
        store.put(f"slices/{written.name}", other)
        for reader in (files, SliceFiles(store)):
            with pytest.raises(CheckpointError, match="is damaged"):
                reader.open(written)


def test_a_new_run_in_the_same_process_trusts_nothing_of_an_old_one():
    store = MemoryStore()
    one, two, nobody = RunIdentity("q", 1, "one"), RunIdentity("q", 2, "two"), RunIdentity()
    assert slice_files(store, one) is slice_files(store, one)
    assert slice_files(store, one) is not slice_files(store, two)
    assert slice_files(store, nobody) is not slice_files(store, nobody)
    written = write(slice_files(store, one), NEW)
    data = bytearray(store.read(f"slices/{written.name}").to_pybytes())
    data[len(data) // 2] ^= 1
    store.put(f"slices/{written.name}", bytes(data))
    with pytest.raises(CheckpointError, match="another digest"):
        slice_files(store, two).open(written)
    with pytest.raises(CheckpointError, match="another digest"):
        slice_files(store, one).open(written)


def test_a_run_trusts_what_its_other_processes_wrote_but_not_what_was_there_before():
    store = MemoryStore()
    written = write(SliceFiles(store), NEW)
    data = store.read(f"slices/{written.name}").to_pybytes()
    value = NEW.table.column(0)[0].as_py().to_bytes(8, "little")
    store.put(f"slices/{written.name}", data.replace(value, bytes(8), 1))
    assert SliceFiles(store).open(written, ours=True) != NEW.table
    with pytest.raises(CheckpointError, match="another digest"):
        SliceFiles(store).open(written)


def test_drivers_never_write_the_same_name():
    store = MemoryStore()
    names = {write(SliceFiles(store, "q", lease), NEW).name for lease in (7, 8)}
    assert len(names) == 2
    assert {lease_of(name) for name in names} == {7, 8}


def test_a_slice_of_another_query_is_refused_by_its_name():
    store = MemoryStore()
    written = write(SliceFiles(store, "this", 1), NEW)
    assert SliceFiles(store, "this", 2).open(written) == NEW.table
    with pytest.raises(CheckpointError, match="rows of another query"):
        SliceFiles(store, "that", 2).open(written)
    unsigned = write(SliceFiles(store, "", 1), NEW)
    with pytest.raises(CheckpointError, match="rows of another query"):
        SliceFiles(store, "that", 2).open(unsigned)
    legacy = write(SliceFiles(store, "", 0), NEW)
    assert SliceFiles(store, "that", 2).open(legacy) == NEW.table


@pytest.mark.parametrize("name", ["", "../x.arrow", "a" * 64, "A" * 64 + ".arrow", "a" * 64 + ".arrow\n"])
def test_a_slice_with_another_name_is_refused(name):
    with pytest.raises(CheckpointError, match="name of a slice must have its digest"):
        SliceFiles(MemoryStore()).open(replace(NEW.slice, name=name))
