import pyarrow as pa
import pytest
from msgspec.structs import replace

from midstream.engine.program import NewSlice
from midstream.errors import CheckpointError
from midstream.protocol.coordinator import EPOCHS_KEPT
from midstream.state.manifest import Manifest
from midstream.state.slices import Slice, StateKey
from midstream.storage.manifests import commit_manifest, forget_manifests, newest_manifest
from midstream.storage.memory import MemoryStore
from midstream.storage.slices import SliceFiles, slice_files

INDEX = pa.table({"hash": pa.array([1, 2, 3], pa.uint64()), "ref a": [0, 1, 2], "time a": [5, 6, 7]})
NEW = NewSlice(Slice(StateKey("index", "a", (0,), 0), 0, 0, 1, 3, (7,)), INDEX)


def test_a_slice_is_named_by_its_bytes_and_read_back():
    store = MemoryStore()
    written = SliceFiles(store).write(NEW)
    assert written.name == f"{written.sha256}.arrow"
    assert written.bytes == store.read(f"slices/{written.name}").size
    assert SliceFiles(store).write(NEW) == written
    assert SliceFiles(store).open(written) == NEW.table


def test_metadata_of_a_slice_survives():
    table = NEW.table.replace_schema_metadata({b"midstream.segments": b"2:\0\xff"})
    store = MemoryStore()
    written = SliceFiles(store).write(NewSlice(NEW.slice, table))
    assert SliceFiles(store).open(written).schema.metadata == table.schema.metadata


@pytest.mark.parametrize("position", [0, 5, 40, -20, -1])
def test_a_damaged_slice_is_refused(position):
    store = MemoryStore()
    written = SliceFiles(store).write(NEW)
    data = bytearray(store.read(f"slices/{written.name}").to_pybytes())
    data[position] ^= 1
    store.put(f"slices/{written.name}", bytes(data))
    with pytest.raises(CheckpointError, match="must have the bytes that its manifest names"):
        SliceFiles(store).open(written)


def test_a_cut_or_longer_slice_is_refused():
    store = MemoryStore()
    files = SliceFiles(store)
    written = files.write(NEW)
    data = store.read(f"slices/{written.name}").to_pybytes()
    for other in (data[:-1], data + b"\0", b""):
        store.put(f"slices/{written.name}", other)
        for reader in (files, SliceFiles(store)):
            with pytest.raises(CheckpointError, match="is damaged"):
                reader.open(written)


def test_a_new_run_in_the_same_process_trusts_nothing_of_an_old_one():
    store = MemoryStore()
    assert slice_files(store, "one", None) is slice_files(store, "one", None)
    assert slice_files(store, "one", None) is not slice_files(store, "two", None)
    assert slice_files(store, "", None) is not slice_files(store, "", None)
    written = slice_files(store, "one", None).write(NEW)
    data = bytearray(store.read(f"slices/{written.name}").to_pybytes())
    data[len(data) // 2] ^= 1
    store.put(f"slices/{written.name}", bytes(data))
    with pytest.raises(CheckpointError, match="another digest"):
        slice_files(store, "two", None).open(written)
    slice_files(store, "one", None).forget_all_but([])
    with pytest.raises(CheckpointError, match="another digest"):
        slice_files(store, "one", None).open(written)


def test_a_run_trusts_what_its_other_processes_wrote_but_not_what_was_there_before():
    store = MemoryStore()
    written = SliceFiles(store).write(NEW)
    data = store.read(f"slices/{written.name}").to_pybytes()
    value = NEW.table.column(0)[0].as_py().to_bytes(8, "little")
    store.put(f"slices/{written.name}", data.replace(value, bytes(8), 1))
    assert SliceFiles(store, began=written.upper).open(written) != NEW.table
    with pytest.raises(CheckpointError, match="another digest"):
        SliceFiles(store, began=written.upper + 1).open(written)


@pytest.mark.parametrize("name", ["", "../x.arrow", "a" * 64, "A" * 64 + ".arrow", "a" * 64 + ".arrow\n"])
def test_a_slice_with_another_name_is_refused(name):
    with pytest.raises(CheckpointError, match="name of a slice must be a digest"):
        SliceFiles(MemoryStore()).open(replace(NEW.slice, name=name))


def manifest(epoch: int) -> Manifest:
    return Manifest(id="q", source="s", epoch=epoch, query={}, plan="a b", first_plan="a b", streams={})


def test_the_newest_manifest_is_the_truth():
    store = MemoryStore()
    assert newest_manifest(store) is None
    for epoch in (0, 1, 9, 10, 100):
        commit_manifest(store, manifest(epoch))
    store.put("manifests/notes.txt", b"a stray file")
    assert newest_manifest(store) == manifest(100)


def test_an_epoch_is_committed_once():
    store = MemoryStore()
    commit_manifest(store, manifest(1))
    with pytest.raises(CheckpointError, match=r"committed by one driver only; .* another query is running"):
        commit_manifest(store, manifest(1))


def test_old_manifests_go_but_enough_stay():
    store = MemoryStore()
    for epoch in range(30):
        commit_manifest(store, manifest(epoch))
        forget_manifests(store, epoch)
    assert len(store.list("manifests")) == EPOCHS_KEPT
    assert newest_manifest(store) == manifest(29)
