"""One driver at a time: who is refused, who may take over, who is fenced."""

import json
import os
import time

import pytest

from midstream.errors import FencedError, LockedError, StreamError
from midstream.storage import lease as leases
from midstream.storage.lease import take_lease
from midstream.storage.memory import MemoryStore


@pytest.fixture
def impatient(monkeypatch):
    monkeypatch.setattr(leases, "PATIENCE", 0.5)
    monkeypatch.setattr(leases, "BEAT_EVERY", 0.05)
    monkeypatch.setattr(leases, "_LOOK_EVERY", 0.01)


def test_a_second_driver_is_refused_within_a_second_and_both_are_named():
    store = MemoryStore()
    first = take_lease(store, "first")
    first.keep(lambda: True)
    begin = time.monotonic()
    with pytest.raises(LockedError, match=r"\(run second, .* held by process \d+ on .* \(run first"):
        take_lease(store, "second")
    assert time.monotonic() - begin < 1
    first.release()
    assert take_lease(store, "third").number == first.number + 1


def test_a_lease_is_given_back_when_the_query_ends(impatient):
    store = MemoryStore()
    running = [True]
    take_lease(store, "first").keep(lambda: running[0])
    running.clear()  # asking now fails, as it does when the JVM is gone
    assert take_lease(store, "second").number == 2


def test_a_lease_that_cannot_be_given_back_does_not_hide_why_the_query_ended(impatient, monkeypatch):
    store = MemoryStore()
    put = MemoryStore.put
    full = [True]

    def fail(self, name, data):
        if full:
            raise StreamError("the disk must have space")
        put(self, name, data)

    lease = take_lease(store, "first")
    monkeypatch.setattr(MemoryStore, "put", fail)
    lease.keep(lambda: False)
    lease.release()
    assert "leases/000000000001.released" not in store.files
    full.clear()
    give_up = time.monotonic() + 5
    while "leases/000000000001.released" not in store.files:
        assert time.monotonic() < give_up, "the thread must go on trying"
        time.sleep(0.01)


def test_a_driver_that_is_gone_is_succeeded_at_once():
    store = MemoryStore()
    take_lease(store, "first")
    holder = json.loads(store.read("leases/000000000001.json").to_pybytes())
    dead = os.fork()
    if dead == 0:
        os._exit(0)
    os.waitpid(dead, 0)
    store.put("leases/000000000001.json", json.dumps({**holder, "pid": dead}).encode())
    begin = time.monotonic()
    assert take_lease(store, "second").number == 2
    assert time.monotonic() - begin < 1


def test_a_driver_that_was_silent_for_too_long_is_fenced(impatient):
    store = MemoryStore()
    paused = take_lease(store, "paused")
    paused.check()
    successor = take_lease(store, "successor")
    successor.check()
    with pytest.raises(FencedError, match=r"has 1; got 2, taken by another driver"):
        paused.check()


def test_old_leases_and_strange_files_do_no_harm(impatient):
    store = MemoryStore()
    store.put("leases/notes.txt", b"")
    for number in range(1, 5):
        lease = take_lease(store, f"run {number}")
        assert lease.number == number
        lease.release()
    kept = {name.partition(".")[0] for name in store.list("leases")} - {"leases/notes"}
    assert kept == {"leases/000000000003", "leases/000000000004"}
