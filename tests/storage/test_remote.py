"""A checkpoint in an object store: the same promise, over conditional puts, with slices cached here."""

import os
import random
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from typer.testing import CliRunner

from midstream.cli.main import app
from midstream.errors import CheckpointError, LockedError
from midstream.inline import InlineJoin
from midstream.runtime.crash_points import POINTS, crash_hook
from midstream.storage import remote as module
from midstream.storage.fsck import check as fsck
from midstream.storage.lease import acquire_lease
from midstream.storage.output_table import OutputTable
from midstream.storage.remote import RemoteStore, store_at
from midstream.testing.faults import SimulatedCrash
from tests.small_case import EPOCHS, QUERY, SETTINGS, check_results


def cached(store: RemoteStore) -> set[str]:
    folder = Path(module._cache_folder(store.url), "slices")
    return {path.name for path in folder.iterdir()} if folder.is_dir() else set()


def start(store, sink=None):
    return InlineJoin(QUERY, settings=SETTINGS, store=store, sink=sink)


def test_one_of_many_writers_wins(remote):
    with ThreadPoolExecutor(8) as pool:
        won = list(pool.map(lambda i: remote.put_if_absent("m/1", str(i).encode()), range(24)))
    assert won.count(True) == 1
    assert remote.read("m/1").to_pybytes() == str(won.index(True)).encode()


def test_a_query_that_dies_at_each_crash_point_is_exact(remote, tmp_path):
    sink = OutputTable("results", str(tmp_path / "results"), "q")
    rng = random.Random(5)
    died_at: list[str] = []

    def hook(point: str) -> None:
        # Not always the first time: each point is one of some epoch.
        if point not in died_at and rng.random() < 0.3:
            died_at.append(point)
            raise SimulatedCrash(point)

    query = None
    while query is None or query.manifest.epoch + 1 < len(EPOCHS):
        try:
            with crash_hook(hook):
                query = start(remote, sink)
                while query.manifest.epoch + 1 < len(EPOCHS):
                    query.run_epoch(EPOCHS[query.manifest.epoch + 1])
        except SimulatedCrash:
            query = None
    assert set(died_at) == set(POINTS)
    check_results(tmp_path / "results")
    assert not fsck(store_at(remote.url, cached=False)).problems


def test_slices_are_read_from_the_cache_and_leave_it_when_they_are_deleted(remote, monkeypatch):
    query = start(remote)
    query.run_epoch(EPOCHS[0])
    written = {name.rpartition("/")[2] for name in remote.list("slices")}
    assert cached(remote) == written
    some = f"slices/{min(written)}"
    with monkeypatch.context() as offline:
        offline.setattr(module, "_connect", None)
        assert remote.read(some).size > 0
    remote.delete(some)
    assert cached(remote) == written - {min(written)}


def test_another_machine_fetches_what_it_has_not_got(remote, monkeypatch, tmp_path):
    sink = OutputTable("results", str(tmp_path / "results"), "q")
    start(remote, sink).run_epoch(EPOCHS[0])
    monkeypatch.setattr(module, "_cache_folder", lambda url: tmp_path / "elsewhere")
    assert cached(remote) == set()
    query = start(remote, sink)
    for epoch in EPOCHS[1:]:
        query.run_epoch(epoch)
    check_results(tmp_path / "results")
    assert cached(remote)


def test_the_cache_stays_within_its_bounds(bucket):
    store = RemoteStore(f"s3://{bucket}/x", cache_bytes=250)
    for i in range(5):
        store.put(f"slices/{i}", bytes(100))
        time.sleep(0.02)
    assert cached(store) == {"3", "4"}
    assert store.read("slices/0").size == 100


def test_a_full_disk_under_the_cache_stops_nobody(remote, monkeypatch):
    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("midstream.storage.durable_file.os.fsync", full)
    remote.put("slices/x", b"bytes")
    assert remote.read("slices/x").to_pybytes() == b"bytes"


def test_a_damaged_copy_is_fetched_anew(remote):
    start(remote).run_epoch(EPOCHS[0])
    name = remote.list("slices")[0]
    good = remote.read(name).to_pybytes()
    copy = Path(module._cache_folder(remote.url), name)
    copy.write_bytes(good[:-1])
    module._verified.clear()
    assert remote.read(name).to_pybytes() == good
    assert copy.read_bytes() == good


def test_a_cache_that_others_can_write_to_is_not_used(remote, tmp_path):
    module._cache_folder.cache_clear()
    for folder in tmp_path.glob("midstream-cache-*"):
        folder.rmdir()
    folder = tmp_path / f"midstream-cache-{os.getuid()}"
    folder.mkdir(mode=0o777)
    folder.chmod(0o777)
    with pytest.raises(CheckpointError, match="must belong to this user alone"):
        remote.put("slices/x", b"")


def test_a_second_driver_is_refused(remote):
    lease = acquire_lease(remote, "first")
    with pytest.raises(LockedError, match="held by"):
        acquire_lease(remote, "second")
    lease.release()


def test_fsck_and_gc_look_at_the_object_store_itself(remote):
    start(remote).run_epoch(EPOCHS[0])
    name = remote.list("slices")[0]
    copy = Path(module._cache_folder(remote.url), name).read_bytes()
    remote.put("slices/left-behind", b"")
    runner = CliRunner()
    assert runner.invoke(app, ["fsck", remote.url]).exit_code == 0
    assert runner.invoke(app, ["gc", "--delete", remote.url]).exit_code == 0
    assert "slices/left-behind" not in remote.list("slices")
    RemoteStore(remote.url, cache_bytes=0).put(name, copy[:-1])
    outcome = runner.invoke(app, ["fsck", remote.url])
    assert outcome.exit_code == 4
    assert name in outcome.output
