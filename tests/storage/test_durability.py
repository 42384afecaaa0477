"""Files that a commit depends on are durable before it, and files that dead drivers leave are deleted."""

import os
import random
from pathlib import Path

import pytest
from msgspec.structs import replace

from midstream.inline import InlineJoin
from midstream.protocol.coordinator import EPOCHS_KEPT
from midstream.runtime.crash_points import crash_hook
from midstream.storage.fsck import check as fsck
from midstream.storage.local import LocalStore
from midstream.storage.manifest_log import (
    manifest_files,
    manifests_newest_first,
    newest_manifest,
    restore_manifest,
)
from midstream.storage.memory_store import MemoryStore
from midstream.storage.output_table import OutputTable
from midstream.storage.publish_log import begin_publishing, is_published, last_noted, noted_epochs
from midstream.testing.faults import FaultStore
from tests.small_case import EPOCHS, QUERY, SETTINGS


@pytest.fixture
def synced(monkeypatch):
    """Everything that was synced, by device and inode, and when it was last changed then."""
    found: dict[int, int] = {}
    real = os.fsync

    def fsync(descriptor: int) -> None:
        real(descriptor)
        status = os.fstat(descriptor)
        found[status.st_ino] = status.st_mtime_ns

    monkeypatch.setattr(os, "fsync", fsync)
    return found


def not_synced(folder: Path, synced: dict[int, int]) -> list[Path]:
    """Files and folders below a folder that have changed since they were last synced, or never were."""
    found = []
    for path in [folder, *folder.rglob("*")]:
        status = path.stat()
        if synced.get(status.st_ino) != status.st_mtime_ns:
            found.append(path)
    return found


def test_when_an_epoch_is_committed_all_that_it_needs_is_on_the_disk(tmp_path, synced):
    checkpoint, results = tmp_path / "new" / "checkpoint", tmp_path / "results"
    lacking: list[Path] = []

    def look(point: str) -> None:
        if point == "after the commit":
            lacking.extend(not_synced(checkpoint, synced) + not_synced(results, synced))

    with crash_hook(look):
        store = LocalStore(str(checkpoint))
        query = InlineJoin(
            QUERY, settings=SETTINGS, store=store, sink=OutputTable("results", str(results), "q")
        )
        for epoch in EPOCHS[:3]:
            query.run_epoch(epoch)
    # Of these only additions must last, and they are synced; a file that was deleted may come back.
    unneeded = {checkpoint / name for name in ("temporary", "published", "intents", "leases")}
    assert set(lacking) <= unneeded


def test_a_note_of_what_is_published_outlasts_the_machine_before_any_of_it_is():
    for seed in range(20):
        store = FaultStore(random.Random(seed))

        def cut(point: str, store: FaultStore = store) -> None:
            if point == "after noting what is published":
                store.lose_power()
                noted = noted_epochs(store)
                assert 0 in noted
                assert not is_published(noted, 0)

        with crash_hook(cut):
            InlineJoin(QUERY, settings=SETTINGS, store=store).run_epoch(EPOCHS[0])
        assert is_published(noted_epochs(store), 0)


@pytest.mark.parametrize("by", ["a start", "publishing"])
def test_a_note_that_is_gone_on_from_outlasts_the_machine(by):
    """Writing it has failed when it was there already: the disk did not confirm it."""
    for seed in range(20):
        store = FaultStore(random.Random(seed))
        manifest = InlineJoin(QUERY, settings=SETTINGS, store=store).manifest
        store.put_if_absent("published/-00000000001", b"")
        store.budget, store.error_rate = 1, 1.0
        with pytest.raises(OSError, match="simulated"):
            store.put_if_absent("published/000000000000", b"")
        noted = noted_epochs(store)
        if by == "a start":
            assert last_noted(store) == max(noted, default=-1)
        else:
            begin_publishing(store, replace(manifest, epoch=0))
        store.lose_power()
        assert noted_epochs(store).keys() >= noted.keys()


def test_a_damaged_manifest_that_was_set_aside_does_not_come_back_after_a_power_cut():
    for seed in range(20):
        store = FaultStore(random.Random(seed))
        query = InlineJoin(QUERY, settings=SETTINGS, store=store)
        for epoch in EPOCHS[:2]:
            query.run_epoch(epoch)
        name = next(manifests_newest_first(store)).file
        whole = store.read(name)
        cut = whole.slice(0, whole.size - 9)
        store.inner.put(name, cut)
        InlineJoin(QUERY, settings=SETTINGS, store=store).run_epoch(EPOCHS[1])
        store.lose_power()
        # An operator restores the damaged file from a copy.
        if store.read(name) == cut:
            store.inner.put(name, whole)
        assert fsck(store).problems == ()
        assert InlineJoin(QUERY, settings=SETTINGS, store=store).manifest.epoch == 1


def test_a_manifest_that_is_gone_on_from_outlasts_the_machine():
    for seed in range(20):
        store = FaultStore(random.Random(seed))
        InlineJoin(QUERY, settings=SETTINGS, store=store).run_epoch(EPOCHS[0])
        name = manifest_files(store)[0].file
        data = store.read(name)
        store.delete(name)
        store.budget, store.error_rate = 1, 1.0
        with pytest.raises(OSError, match="simulated"):
            store.put_if_absent(name, data)
        restored = restore_manifest(store, 2)
        store.lose_power()
        assert restored is None or newest_manifest(store) == restored.manifest


def test_manifests_that_a_driver_did_not_come_to_delete_are_deleted_by_the_next():
    store = MemoryStore()
    query = InlineJoin(QUERY, settings=SETTINGS, store=store)
    for _ in range(EPOCHS_KEPT + 5):
        query.run_epoch({})
    oldest = manifest_files(store)[0].file
    store.put("manifests/000000000001.json", store.read(oldest))
    InlineJoin(QUERY, settings=SETTINGS, store=store).run_epoch({})
    assert len(list(manifests_newest_first(store))) == EPOCHS_KEPT
