"""Collecting garbage under a lease: no query starts meanwhile, and no file of a successor is deleted."""

import threading
import time
from contextlib import suppress

import pytest

from midstream.cli.fsck import gc
from midstream.errors import CheckpointError, FencedError, LockedError
from midstream.inline import InlineJoin
from midstream.runtime.crash_points import crash_hook
from midstream.storage import fsck as checking
from midstream.storage.fsck import check as fsck
from midstream.storage.fsck import collect_garbage
from midstream.storage.lease import acquire_lease, seize_lease
from midstream.storage.local import LocalStore
from midstream.storage.manifest_log import manifests_newest_first
from midstream.storage.memory_store import MemoryStore
from midstream.testing.faults import SimulatedCrash
from tests.helpers import die_at
from tests.small_case import EPOCHS, QUERY, SETTINGS


def _littered(store):
    """A checkpoint in which an attempt that died has left slices behind."""
    lease = seize_lease(store, "first")
    query = InlineJoin(QUERY, settings=SETTINGS, store=store, lease=lease)
    for epoch in EPOCHS[:2]:
        query.run_epoch(epoch)
    with pytest.raises(SimulatedCrash), die_at("after the step"):
        query.run_epoch(EPOCHS[2])
    lease.release()
    orphans = fsck(store).orphans
    assert orphans
    return orphans


def test_nobody_starts_while_garbage_is_collected_however_long_that_takes(impatient, tmp_path, monkeypatch):
    store = LocalStore(str(tmp_path))
    orphans = _littered(store)
    inner, begun, go_on = checking._check_slices, threading.Event(), threading.Event()

    def slow(*arguments):
        begun.set()
        assert go_on.wait(20)
        return inner(*arguments)

    monkeypatch.setattr(checking, "_check_slices", slow)
    collecting = threading.Thread(target=gc, args=(str(tmp_path), True))
    collecting.start()
    try:
        assert begun.wait(20)
        time.sleep(1.0)  # twice as long as others are patient
        with pytest.raises(LockedError, match=r"held by process \d+ on .* \(run gc"):
            acquire_lease(store, "start")
    finally:
        go_on.set()
        collecting.join(20)
    assert not set(orphans) & set(store.list("slices"))
    lease = acquire_lease(store, "start")
    query = InlineJoin(QUERY, settings=SETTINGS, store=store, lease=lease)
    query.run_epoch(EPOCHS[2])
    lease.release()
    assert fsck(store).problems == ()


@pytest.mark.parametrize("paused_at", ["list slices", "list temporary", "delete slices", "delete temporary"])
@pytest.mark.parametrize("until", ["after the step", "after the commit", "the end"])
def test_a_collector_that_was_paused_and_given_up_deletes_nothing_of_its_successor(paused_at, until):
    """It is paused before some call of the store, right after it has looked whether it holds the lease."""
    what, folder = paused_at.split()
    happened: list[set[str]] = []

    class Pausing(MemoryStore):
        def list(self, name):
            if (what, folder) == ("list", name):
                happen()
            return super().list(name)

        def delete(self, name):
            if what == "delete" and name.startswith(folder):
                happen()
            super().delete(name)

    def happen() -> None:
        if happened:
            return
        happened.append(set(store.files))
        successor = InlineJoin(QUERY, settings=SETTINGS, store=truth)
        try:
            with die_at(until):
                successor.run_epoch(EPOCHS[2])
                successor.run_epoch(EPOCHS[3])
        except SimulatedCrash:
            pass
        # Files that a successor is writing when the collector wakes.
        store.put("temporary/new", b"")
        happened.append(set(store.files))

    store = MemoryStore()
    _littered(store)
    store.put("temporary/old", b"")
    truth = MemoryStore(store.files)
    lease = seize_lease(store, "gc")
    pausing = Pausing(store.files)
    with suppress(FencedError):
        collect_garbage(pausing, lease, delete=True)
    before, after = happened
    new = after - before
    assert new
    assert new <= set(store.files), "what the successor has written"
    again = InlineJoin(QUERY, settings=SETTINGS, store=store)
    for epoch in EPOCHS[again.manifest.epoch + 1 :]:
        again.run_epoch(epoch)
    assert fsck(store).problems == ()


def test_the_files_with_which_a_collector_keeps_its_lease_are_no_garbage():
    class Beating(MemoryStore):
        def list(self, folder):
            listed = super().list(folder)
            self.put("temporary/beat", b"")
            return listed

    store = MemoryStore()
    orphans = _littered(store)
    store.put("temporary/old", b"")
    found = collect_garbage(Beating(store.files), seize_lease(store, "gc"), delete=True)
    assert set(found) == {*orphans, "temporary/old"}
    assert store.list("temporary") == ["temporary/beat"]


def test_a_query_that_was_stopped_in_the_middle_of_an_epoch_does_not_commit_it(impatient):
    """Its thread runs on after its lease was given back, and others were told that they may begin."""
    store = MemoryStore()
    lease = acquire_lease(store, "stopped")
    query = InlineJoin(QUERY, settings=SETTINGS, store=store, lease=lease)
    query.run_epoch(EPOCHS[0])

    def stop(point: str) -> None:
        if point == "before the commit":
            lease.release()

    with pytest.raises(FencedError, match="which has given it back"), crash_hook(stop):
        query.run_epoch(EPOCHS[1])
    assert query.manifest.epoch == 0
    successor = acquire_lease(store, "successor")
    again = InlineJoin(QUERY, settings=SETTINGS, store=store, lease=successor)
    assert again.manifest.epoch == 0
    for epoch in EPOCHS[1:]:
        again.run_epoch(epoch)
    successor.release()
    assert fsck(store).problems == ()


def test_a_query_that_was_stopped_after_its_successor_began_commits_nothing(impatient):
    store = MemoryStore()
    lease = acquire_lease(store, "stopped")
    query = InlineJoin(QUERY, settings=SETTINGS, store=store, lease=lease)
    query.run_epoch(EPOCHS[0])
    others: list[InlineJoin] = []

    def stop(point: str) -> None:
        if point == "before the commit" and not others:
            lease.release()
            others.append(InlineJoin(QUERY, settings=SETTINGS, store=store))
            others[0].run_epoch(EPOCHS[1])

    with pytest.raises(FencedError), crash_hook(stop):
        query.run_epoch(EPOCHS[1])
    others[0].run_epoch(EPOCHS[2])
    assert fsck(store).problems == ()


def test_nothing_is_deleted_from_a_checkpoint_that_is_damaged():
    store = MemoryStore()
    join = InlineJoin(QUERY, settings=SETTINGS, store=store)
    for epoch in EPOCHS[:3]:
        join.run_epoch(epoch)
    newest = next(manifests_newest_first(store)).file
    whole = store.files[newest]
    store.put(newest, whole.to_pybytes()[:-9])
    before = set(store.files)
    lease = seize_lease(store, "gc")
    with pytest.raises(CheckpointError, match=f"must be sound before anything .* got {newest}"):
        collect_garbage(store, lease, delete=True)
    assert before <= set(store.files)
    store.put(newest, whole)
    assert fsck(store).problems == ()
