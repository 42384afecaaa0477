"""Holding a lease: files in the store, and a thread that beats from the moment it is taken.

Whether a holder lives is seen by watching its beat change, not by comparing its clock with ours: two
machines need not agree on the time. On the same machine a process that is gone is known to be gone.
"""

from __future__ import annotations

import atexit
import logging
import os
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from midstream.errors import CheckpointError, MidstreamError
from midstream.protocol.lease import BEAT_EVERY, PATIENCE, Holder, must_hold, refuse, released
from midstream.state.sealed import UNREADABLE
from midstream.storage.manifest_log import close_log, manifest_files
from midstream.storage.store import Store

FOLDER = "leases"
_NAME = re.compile(rf"{FOLDER}/(\d{{12}})\.(json|beat|released)\Z")
_LOOK_EVERY = 0.1
_SETTLED, _UNSETTLED = b"", b"unsettled"
"""What a note says with which a lease was given back: whether all that its holder did is done."""
_log = logging.getLogger("midstream")


class Lease:
    """A lease that this process has taken."""

    def __init__(self, store: Store, number: int, holder: Holder) -> None:
        self.number = number
        self.holder = holder
        self._store = store
        self._beats = 0
        self._alive: Callable[[], bool] = lambda: True
        self._done = threading.Event()
        self._lock = threading.Lock()
        self._given_back = False
        self._settled = True

    def keep(self) -> None:
        """Beat in the background from now on."""
        atexit.register(self._done.set)  # the checkpoint may be removed before this thread is
        threading.Thread(target=self._keep, name="midstream lease", daemon=True).start()

    def keep_while(self, alive: Callable[[], bool]) -> None:
        """Go on beating until ``alive`` says no; then give the lease back."""
        self._alive = alive

    def check(self) -> None:
        """Raise if another driver has taken the lease."""
        must_hold(self.number, _newest_number(self._store), self.holder)

    @contextmanager
    def holding(self) -> Iterator[None]:
        """Do something that must not happen once the lease was given back.

        Stopping a query does not stop the thread that runs its batch. What that thread commits after others
        were told that they may begin would be no better than the commit of a driver that was given up.
        """
        with self._lock:
            if self._given_back:
                raise released(self.holder)
            # If this fails, nobody knows whether it was done, or will be yet when a slow request arrives.
            self._settled = False
            yield
            self._settled = True

    def release(self) -> None:
        """Give the lease back, so that the next driver need not wait."""
        if self._done.is_set():
            return
        with self._lock:
            self._given_back = True
        try:
            self._store.put(_name(self.number, "released"), _SETTLED if self._settled else _UNSETTLED)
            self._done.set()
            atexit.unregister(self._done.set)
        except (OSError, MidstreamError) as error:
            # What ended the query is what its user must hear of, not this. The thread tries again.
            _log.warning("the lease of the checkpoint could not be given back: %s", error)

    def beat(self) -> None:
        """Say that the holder lives."""
        self._beats += 1
        self._store.put(_name(self.number, "beat"), str(self._beats).encode())

    def _keep(self) -> None:
        while not self._done.wait(BEAT_EVERY):
            try:
                if self._given_back or not _is_alive(self._alive):
                    self.release()
                else:
                    self.beat()
            except (OSError, MidstreamError) as error:
                # A disk that is full for a moment must not end the beating.
                if not self._done.is_set():
                    _log.warning("the lease of the checkpoint could not be renewed: %s", error)


def take_lease(store: Store, run: str) -> Lease:
    """Take the lease of a checkpoint; an error that names both drivers if another one holds it.

    It is kept from then on, however long it takes until the query runs.
    """
    lease = claim_lease(store, run, wait=True)
    lease.keep()
    return lease


def claim_lease(store: Store, run: str, *, wait: bool = False) -> Lease:
    """Take the lease without waiting for its holder to end, for whoever knows that there is no other.

    It is not kept by beating: for drivers that share this process.
    """
    now = datetime.now(UTC).isoformat(timespec="seconds")
    me = Holder(socket.gethostname(), _machine(), os.getpid(), run, now)
    while True:
        number = _newest_number(store)
        if number and wait:
            _wait_for_end(store, number, me)
        # Somebody may have removed the leases. Numbers must grow all the same: manifests have them.
        number = max(number, *(name.lease for name in manifest_files(store)), 0)
        lease = Lease(store, number + 1, me)
        # The beat comes first: a lease without one would look abandoned.
        lease.beat()
        name = _name(lease.number, "json")
        # If only the answer was lost, it is ours all the same.
        if store.put_if_absent(name, msgspec.json.encode(me)) or _read_holder(store, lease.number) == me:
            break
    _succeed(store, lease.number)
    return lease


def _succeed(store: Store, mine: int) -> None:
    """Close the logs of holders before us that have not ended in order, and clear away what they leave."""
    names = [name for name in store.list(FOLDER) if 0 < _number(name) < mine]
    for number in sorted({_number(name) for name in names if name.endswith(".json")}):
        ended = _name(number, "released")
        if ended not in names or store.read(ended).to_pybytes() != _SETTLED:
            close_log(store, number, mine)
            store.put(ended, _SETTLED)
    for name in names:
        if _number(name) < mine - 1:
            store.delete(name)


def _wait_for_end(store: Store, number: int, me: Holder) -> None:
    """Return once the holder has ended or is given up; raise as soon as it shows that it lives."""
    holder = _read_holder(store, number)
    if holder.machine == me.machine and not _runs(holder.pid):
        return
    first = _last_beat(store, number)
    give_up = time.monotonic() + PATIENCE
    while time.monotonic() < give_up:
        if _name(number, "released") in store.list(FOLDER):
            return
        if _last_beat(store, number) != first:
            raise refuse(me, holder)
        time.sleep(_LOOK_EVERY)


def _read_holder(store: Store, number: int) -> Holder:
    name = _name(number, "json")
    try:
        return msgspec.json.decode(store.read(name).to_pybytes(), type=Holder)
    except UNREADABLE as error:
        hint = "if no query runs on the checkpoint, delete the file"
        raise CheckpointError(f"lease {name} must be readable", got=error, hint=hint) from None


def _last_beat(store: Store, number: int) -> bytes:
    name = _name(number, "beat")
    return store.read(name).to_pybytes() if name in store.list(FOLDER) else b""


def _newest_number(store: Store) -> int:
    return max((_number(name) for name in store.list(FOLDER) if name.endswith(".json")), default=0)


def _number(name: str) -> int:
    known = _NAME.match(name)
    return int(known.group(1)) if known else 0


def _name(number: int, kind: str) -> str:
    return f"{FOLDER}/{number:012d}.{kind}"


def _is_alive(alive: Callable[[], bool]) -> bool:
    try:
        return alive()
    except Exception:  # the JVM is gone, and the query with it
        return False


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _machine() -> str:
    """The boot of this machine and the space of its process numbers; the host's name elsewhere."""
    boot, space = Path("/proc/sys/kernel/random/boot_id"), Path("/proc/self/ns/pid")
    if boot.exists() and space.exists():
        return f"{boot.read_text().strip()}/{space.stat().st_ino}"
    return socket.gethostname()
