import pyarrow as pa
import pytest
from msgspec.structs import replace

from midstream.engine.program import NewSlice, Writer
from midstream.errors import CheckpointError, FencedError, FormatError
from midstream.plan.state_id import StateId
from midstream.protocol.coordinator import EPOCHS_KEPT
from midstream.state.manifest import FORMAT, Manifest, encode_manifest, manifest_json
from midstream.state.sealed import seal
from midstream.state.slices import Slice, SliceOwner
from midstream.storage.manifest_log import (
    close_log,
    commit_manifest,
    manifest_name,
    newest_manifest,
    restore_manifest,
    sweep_manifests,
)
from midstream.storage.memory import MemoryStore
from midstream.storage.slice_files import SliceFiles, lease_of, slice_files

INDEX = pa.table({"hash": pa.array([1, 2, 3], pa.uint64()), "ref a": [0, 1, 2], "time a": [5, 6, 7]})
NEW = NewSlice(Slice(SliceOwner("index", StateId("a"), (0,), 0), 0, 0, 1, 3, (7,)), INDEX)


def test_a_slice_is_named_by_its_bytes_and_read_back():
    store = MemoryStore()
    written = SliceFiles(store).write(NEW)
    assert written.name == f"{0:012d}-{written.sha256}.arrow"
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
    one, two, nobody = Writer("q", 1, "one"), Writer("q", 2, "two"), Writer()
    assert slice_files(store, one) is slice_files(store, one)
    assert slice_files(store, one) is not slice_files(store, two)
    assert slice_files(store, nobody) is not slice_files(store, nobody)
    written = slice_files(store, one).write(NEW)
    data = bytearray(store.read(f"slices/{written.name}").to_pybytes())
    data[len(data) // 2] ^= 1
    store.put(f"slices/{written.name}", bytes(data))
    with pytest.raises(CheckpointError, match="another digest"):
        slice_files(store, two).open(written)
    slice_files(store, one).forget_all_but([])
    with pytest.raises(CheckpointError, match="another digest"):
        slice_files(store, one).open(written)


def test_a_run_trusts_what_its_other_processes_wrote_but_not_what_was_there_before():
    store = MemoryStore()
    written = SliceFiles(store).write(NEW)
    data = store.read(f"slices/{written.name}").to_pybytes()
    value = NEW.table.column(0)[0].as_py().to_bytes(8, "little")
    store.put(f"slices/{written.name}", data.replace(value, bytes(8), 1))
    assert SliceFiles(store).open(written, ours=True) != NEW.table
    with pytest.raises(CheckpointError, match="another digest"):
        SliceFiles(store).open(written)


def test_drivers_never_write_the_same_name():
    store = MemoryStore()
    names = {SliceFiles(store, "q", lease).write(NEW).name for lease in (7, 8)}
    assert len(names) == 2
    assert {lease_of(name) for name in names} == {7, 8}


def test_a_slice_of_another_query_is_refused_by_its_name():
    store = MemoryStore()
    written = SliceFiles(store, "this", 1).write(NEW)
    assert SliceFiles(store, "this", 2).open(written) == NEW.table
    with pytest.raises(CheckpointError, match="rows of another query"):
        SliceFiles(store, "that", 2).open(written)
    unsigned = SliceFiles(store, "", 1).write(NEW)
    with pytest.raises(CheckpointError, match="rows of another query"):
        SliceFiles(store, "that", 2).open(unsigned)
    legacy = SliceFiles(store, "", 0).write(NEW)
    assert SliceFiles(store, "that", 2).open(legacy) == NEW.table


@pytest.mark.parametrize("name", ["", "../x.arrow", "a" * 64, "A" * 64 + ".arrow", "a" * 64 + ".arrow\n"])
def test_a_slice_with_another_name_is_refused(name):
    with pytest.raises(CheckpointError, match="name of a slice must have its digest"):
        SliceFiles(MemoryStore()).open(replace(NEW.slice, name=name))


def manifest(epoch: int, lease: int = 1) -> Manifest:
    return Manifest(
        id="q",
        spark_query="s",
        epoch=epoch,
        definition={},
        plan="a b",
        initial_plan="a b",
        streams={},
        lease=lease,
    )


def test_the_newest_manifest_is_the_truth():
    store = MemoryStore()
    assert newest_manifest(store) is None
    for epoch in (0, 1, 9, 10, 100):
        commit_manifest(store, manifest(epoch))
    store.put("manifests/notes.txt", b"a stray file")
    assert newest_manifest(store) == manifest(100)


def test_the_newest_manifest_is_that_of_the_highest_lease():
    store = MemoryStore()
    for lease, epoch in ((1, 5), (1, 6), (2, 6), (1, 99)):
        commit_manifest(store, manifest(epoch, lease))
    assert newest_manifest(store) == manifest(6, 2)


def test_an_epoch_is_committed_once():
    store = MemoryStore()
    commit_manifest(store, manifest(1))
    # If only the answer was lost, what is there is its own.
    commit_manifest(store, manifest(1))
    with pytest.raises(FencedError, match=r"committed by one driver only; .* another driver has taken over"):
        commit_manifest(store, replace(manifest(1), results=7))


def test_a_driver_whose_log_was_closed_commits_nothing_any_more():
    store = MemoryStore()
    commit_manifest(store, manifest(0, 7))
    close_log(store, 7, by=8)
    for epoch in range(1, 40):
        commit_manifest(store, manifest(epoch, 8))
        sweep_manifests(store, epoch)
        with pytest.raises(FencedError):
            commit_manifest(store, manifest(1, 7))
    assert newest_manifest(store) == manifest(39, 8)


def test_a_log_is_closed_behind_a_commit_that_was_faster(monkeypatch):
    store, put, late = MemoryStore(), MemoryStore.put_if_absent, [manifest(1, 7)]

    def slow(self, name, data):
        if late:
            put(self, manifest_name(7, 1), encode_manifest(late.pop()))
        return put(self, name, data)

    commit_manifest(store, manifest(0, 7))
    monkeypatch.setattr(MemoryStore, "put_if_absent", slow)
    close_log(store, 7, by=8)
    assert newest_manifest(store) == manifest(1, 7)
    with pytest.raises(FencedError):
        commit_manifest(store, manifest(2, 7))


def test_closing_a_log_twice_is_closing_it_once():
    store = MemoryStore()
    close_log(store, 7, by=8)
    before = dict(store.files)
    close_log(store, 7, by=9)
    assert store.files == before


@pytest.mark.parametrize("noted", [True, False])
@pytest.mark.parametrize("committed_by", [None, 7, 8])
def test_a_log_whose_closing_file_is_damaged_is_closed_all_the_same(noted, committed_by):
    # Taking over once went round for ever: the name was taken, and did not say by what.
    store = MemoryStore()
    if committed_by is not None:
        commit_manifest(store, manifest(0, committed_by))
    close_log(store, 7, by=9)
    closing = manifest_name(7, 0 if committed_by is None else 1)
    store.put(closing, b"{")
    if not noted:
        store.delete(f"{closing}.closed")
    close_log(store, 7, by=10)
    with pytest.raises(FencedError):
        commit_manifest(store, manifest(0 if committed_by is None else 1, 7))


def test_old_manifests_go_but_enough_stay():
    store = MemoryStore()
    for epoch in range(30):
        commit_manifest(store, manifest(epoch))
        sweep_manifests(store, epoch)
    assert len(store.list("manifests")) == EPOCHS_KEPT
    assert newest_manifest(store) == manifest(29)


def test_a_manifest_of_a_newer_version_is_not_taken_for_damage():
    store = MemoryStore()
    commit_manifest(store, manifest(0))
    body = manifest_json(replace(manifest(1), format=FORMAT + 1))
    store.put(manifest_name(1, 1), seal("manifest", body))
    before = dict(store.files)
    with pytest.raises(FormatError, match="upgrade Midstream"):
        restore_manifest(store, 2)
    assert store.files == before


def test_a_manifest_that_goes_while_others_are_read_is_passed_over(monkeypatch):
    store = MemoryStore()
    for epoch in (0, 1):
        commit_manifest(store, manifest(epoch))
    real = MemoryStore.list
    monkeypatch.setattr(MemoryStore, "list", lambda self, at: [*real(self, at), manifest_name(1, 2)])
    assert newest_manifest(store) == manifest(1)
