"""Holding a lease: files in the store, and a thread that beats while the query runs."""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime

import msgspec

from midstream.protocol.lease import BEAT_EVERY, Holder, LeaseState, must_hold, next_lease
from midstream.storage.store import Store

FOLDER = "leases"
_log = logging.getLogger("midstream")


class Lease:
    """A lease that this process has taken."""

    def __init__(self, store: Store, number: int, holder: Holder) -> None:
        self.number = number
        self.holder = holder
        self._store = store
        self._done = threading.Event()

    def keep(self, alive: Callable[[], bool]) -> None:
        """Beat in the background until ``alive`` says no; then give the lease back."""
        threading.Thread(target=self._keep, args=(alive,), name="midstream lease", daemon=True).start()

    def check(self) -> None:
        """Raise if another driver has taken the lease."""
        must_hold(self.number, _newest_number(self._store), self.holder)

    def release(self) -> None:
        """Give the lease back, so that the next driver need not wait."""
        if not self._done.is_set():
            self._done.set()
            self._store.put(_name(self.number, "released"), b"")

    def _keep(self, alive: Callable[[], bool]) -> None:
        while not self._done.wait(BEAT_EVERY):
            try:
                if not alive():
                    self.release()
                else:
                    self.beat()
            except Exception as error:  # a beat that fails must not end the beating
                _log.warning("the lease of the checkpoint could not be renewed: %s", error)

    def beat(self) -> None:
        """Say that the holder lives."""
        self._store.put(_name(self.number, "beat"), str(time.time()).encode())


def take_lease(store: Store, run: str) -> Lease:
    """Take the lease of a checkpoint; an error that names both drivers if another one holds it."""
    now = datetime.now(UTC).isoformat(timespec="seconds")
    me = Holder(socket.gethostname(), os.getpid(), run, now)
    while True:
        lease = Lease(store, next_lease(_newest(store, me), me), me)
        # The beat comes first: a lease without one would look abandoned.
        lease.beat()
        if store.put_if_absent(_name(lease.number, "json"), msgspec.json.encode(me)):
            break
    for name in store.list(FOLDER):
        if _number(name) < lease.number - 1:
            store.delete(name)
    return lease


def _newest(store: Store, me: Holder) -> LeaseState | None:
    number = _newest_number(store)
    if number == 0:
        return None
    holder = msgspec.json.decode(store.read(_name(number, "json")).to_pybytes(), type=Holder)
    names = set(store.list(FOLDER))
    beat = _name(number, "beat")
    last = float(store.read(beat).to_pybytes()) if beat in names else 0.0
    return LeaseState(
        number,
        holder,
        released=_name(number, "released") in names,
        silence=time.time() - last,
        gone=holder.host == me.host and not _runs(holder.pid),
    )


def _newest_number(store: Store) -> int:
    return max((_number(name) for name in store.list(FOLDER) if name.endswith(".json")), default=0)


def _number(name: str) -> int:
    return int(name.rpartition("/")[2].partition(".")[0])


def _name(number: int, kind: str) -> str:
    return f"{FOLDER}/{number:012d}.{kind}"


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
