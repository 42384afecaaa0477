"""The newest manifest is the truth: one driver commits it, and no driver whose log was closed."""

import random

import pytest
from msgspec.structs import replace

from midstream.errors import FencedError, FormatError
from midstream.protocol.coordinator import EPOCHS_KEPT
from midstream.state.json_with_digest import encode_with_digest
from midstream.state.manifest import FORMAT, Manifest, encode_manifest, manifest_json
from midstream.state.routing_table import RoutingTable
from midstream.storage.manifest_log import (
    close_log,
    commit_manifest,
    manifest_files,
    manifest_name,
    newest_manifest,
    restore_manifest,
    sweep_manifests,
)
from midstream.storage.memory_store import MemoryStore
from midstream.testing.faults import FaultStore


def manifest(epoch: int, lease: int = 1) -> Manifest:
    return Manifest(
        routings=(RoutingTable(0, 3),),
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
    store.put(manifest_name(1, 1), encode_with_digest("manifest", body))
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


@pytest.mark.parametrize("seed", range(20))
def test_of_two_manifests_of_an_epoch_no_power_cut_brings_only_the_first_back(seed):
    store = FaultStore(random.Random(seed))
    epochs = [(1, 0), (1, 1), (1, 2), (3, 2), (4, 2), (5, 3), *((5, e) for e in range(4, 13))]
    for lease, epoch in epochs:
        commit_manifest(store, manifest(epoch, lease))
    sweep_manifests(store, 12)
    store.lose_power()
    left = [(name.lease, name.epoch) for name in manifest_files(store)]
    # Not (1, 2) and then (5, 3), nor (1, 1) and then (3, 2): one between them would be missing.
    assert left[-10:] == epochs[-10:]
    of_two = [pair for pair in left if pair[1] == 2]
    assert of_two in ([], [(4, 2)])
    assert not of_two or (1, 1) not in left
