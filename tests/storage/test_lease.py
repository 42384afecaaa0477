"""One driver at a time: who is refused, who may take over, who is fenced."""

import json
import os
import shutil
import subprocess
import sys
import threading
import time

import pytest

from midstream.errors import CheckpointError, FencedError, LockedError, StreamError
from midstream.inline import InlineJoin
from midstream.storage.lease import Lease, acquire_lease, seize_lease
from midstream.storage.local import LocalStore
from midstream.storage.manifest_log import manifest_name
from midstream.storage.memory_store import MemoryStore
from tests.helpers import small_query

QUERY = small_query(["a.k = b.k"], default_window=10)


def test_a_second_driver_is_refused_within_a_second_and_both_are_named():
    store = MemoryStore()
    first = acquire_lease(store, "first")
    begin = time.monotonic()
    with pytest.raises(LockedError, match=r"\(run second, .* held by process \d+ on .* \(run first"):
        acquire_lease(store, "second")
    assert time.monotonic() - begin < 1
    first.release()
    assert acquire_lease(store, "third").number == first.number + 1


def test_no_beat_comes_after_the_release(impatient):
    store, under_way, go_on = MemoryStore(), threading.Event(), threading.Event()
    put = MemoryStore.put

    class Slow(MemoryStore):
        def put(self, name, data):
            if name.endswith(".beat") and self.list("leases"):
                under_way.set()
                go_on.wait(10)
            put(self, name, data)

    slow = Slow(store.files)
    first = seize_lease(store, "first")
    lease = Lease(slow, first.number, first.holder)
    lease.start_heartbeat()
    assert under_way.wait(10)
    releasing = threading.Thread(target=lease.release)
    releasing.start()
    assert releasing.is_alive()
    go_on.set()
    releasing.join(10)
    # The checkpoint may be removed as soon as the query has ended: nothing may be written any more.
    store.files.clear()
    time.sleep(0.2)
    assert store.files == {}


def test_a_checkpoint_that_was_removed_is_not_made_again(impatient, tmp_path, caplog):
    before = set(threading.enumerate())
    lease = acquire_lease(LocalStore(str(tmp_path / "checkpoint")), "running")
    (keeper,) = set(threading.enumerate()) - before
    (tmp_path / "checkpoint").rename(tmp_path / "removed")
    keeper.join(10)
    assert not keeper.is_alive()
    lease.release()
    assert caplog.records == []
    assert [path.name for path in tmp_path.iterdir()] == ["removed"]


def test_a_lease_that_is_given_back_does_not_make_a_removed_checkpoint_again(tmp_path, caplog):
    lease = acquire_lease(LocalStore(str(tmp_path / "checkpoint")), "running")
    shutil.rmtree(tmp_path / "checkpoint")
    lease.release()  # before the thread that sends heartbeats has noticed
    assert list(tmp_path.iterdir()) == []
    assert caplog.records == []


def test_a_process_that_ends_may_remove_the_checkpoint(tmp_path):
    program = (
        "import atexit, shutil, sys\n"
        "from midstream.storage import lease\n"
        "from midstream.storage.local import LocalStore\n"
        "lease.HEARTBEAT_SECONDS = 0.0001\n"
        "atexit.register(shutil.rmtree, sys.argv[1])\n"
        "lease.acquire_lease(LocalStore(sys.argv[1]), 'ends')\n"
    )
    folder = tmp_path / "checkpoint"
    command = [sys.executable, "-c", program, folder]
    ended = subprocess.run(command, check=True, capture_output=True, text=True)
    assert (ended.stdout, ended.stderr) == ("", "")
    assert not folder.exists()


def test_a_lease_that_cannot_be_given_back_does_not_hide_why_the_query_ended(impatient, monkeypatch):
    store = MemoryStore()
    put = MemoryStore.put
    full = [True]

    def fail(self, name, data):
        if full:
            raise StreamError("the disk must have space")
        put(self, name, data)

    lease = acquire_lease(store, "first")
    monkeypatch.setattr(MemoryStore, "put", fail)
    lease.release()
    assert "leases/000000000001.released" not in store.files
    full.clear()
    give_up = time.monotonic() + 5
    while "leases/000000000001.released" not in store.files:
        assert time.monotonic() < give_up, "the thread must go on trying"
        time.sleep(0.01)


def test_a_driver_that_is_gone_is_succeeded_at_once():
    store = MemoryStore()
    seize_lease(store, "first")
    holder = json.loads(store.read("leases/000000000001.json").to_pybytes())
    dead = os.fork()
    if dead == 0:
        os._exit(0)
    os.waitpid(dead, 0)
    store.put("leases/000000000001.json", json.dumps({**holder, "pid": dead}).encode())
    begin = time.monotonic()
    assert acquire_lease(store, "second").number == 2
    assert time.monotonic() - begin < 1


def test_a_lease_is_kept_from_the_moment_it_is_taken(impatient):
    store = MemoryStore()
    slow = acquire_lease(store, "slow start")
    time.sleep(1.0)  # twice as long as others are patient
    with pytest.raises(LockedError, match="slow start"):
        acquire_lease(store, "second")
    slow.release()


def test_numbers_grow_though_somebody_removed_the_leases():
    store = MemoryStore()
    join = InlineJoin(QUERY, store=store)
    join.run_epoch({})
    for name in store.list("leases"):
        store.delete(name)
    again = InlineJoin(QUERY, store=store)
    again.run_epoch({})
    assert again.manifest.lease == 2


def test_nothing_is_committed_once_the_lease_was_given_back():
    store = MemoryStore()
    lease = seize_lease(store, "stopped")
    with lease.holding():
        pass
    lease.release()
    with pytest.raises(FencedError, match="which has given it back"), lease.holding():
        pytest.fail("must not come here")


def test_a_driver_that_died_while_it_took_over_leaves_the_rest_to_the_next():
    store = MemoryStore()
    paused = InlineJoin(QUERY, store=store)
    paused.run_epoch({})
    # The second driver has its lease, and dies before it has closed the log of the first.
    store.put_if_absent("leases/000000000002.json", store.read("leases/000000000001.json"))
    third = seize_lease(store, "third")
    assert third.number == 3
    for lease in (1, 2):
        assert not store.put_if_absent(manifest_name(lease, 1), b"")


def test_a_driver_that_was_silent_for_too_long_is_fenced(impatient):
    store = MemoryStore()
    paused = seize_lease(store, "paused")
    paused.check()
    successor = acquire_lease(store, "successor")
    successor.check()
    with pytest.raises(FencedError, match=r"has 1; got 2, taken by another driver"):
        paused.check()


def test_old_leases_and_strange_files_do_no_harm(impatient):
    store = MemoryStore()
    store.put("leases/notes.txt", b"")
    for number in range(1, 5):
        lease = acquire_lease(store, f"run {number}")
        assert lease.number == number
        lease.release()
    kept = {name.partition(".")[0] for name in store.list("leases")} - {"leases/notes"}
    assert kept == {"leases/000000000003", "leases/000000000004"}


def test_a_driver_whose_commit_may_still_arrive_has_its_log_closed(impatient):
    store = MemoryStore()
    lease = seize_lease(store, "slow")

    def commit():
        with lease.holding():
            raise TimeoutError

    with pytest.raises(TimeoutError):
        commit()
    lease.release()
    acquire_lease(store, "next").release()
    # The request that was given up arrives now.
    assert not store.put_if_absent(manifest_name(1, 0), b"")


def test_a_driver_that_ended_in_order_leaves_nothing_behind():
    store = MemoryStore()
    for _ in range(5):
        lease = acquire_lease(store, "run")
        with lease.holding():
            pass
        lease.release()
    assert store.list("manifests") == []


@pytest.mark.parametrize("data", [b"", b"{}", b"[1]", b'{"host":1}', b"\xff"])
def test_a_lease_that_is_none_is_refused(data):
    store = MemoryStore()
    store.put("leases/000000000001.json", data)
    with pytest.raises(CheckpointError, match=r"lease leases/000000000001.json must be readable"):
        acquire_lease(store, "mine")
