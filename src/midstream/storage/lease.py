"""Holding a lease: files in the store, and a thread that beats while the query runs.

Whether a holder lives is seen by watching its beat change, not by comparing its clock with ours: two
machines need not agree on the time. On the same machine a process that is gone is known to be gone.
"""

from __future__ import annotations

import logging
import os
import re
import socket
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from midstream.errors import CheckpointError, MidstreamError
from midstream.protocol.lease import BEAT_EVERY, PATIENCE, Holder, must_hold, refuse
from midstream.storage.store import Store

FOLDER = "leases"
_NAME = re.compile(rf"{FOLDER}/(\d{{12}})\.(json|beat|released)\Z")
_LOOK_EVERY = 0.1
_log = logging.getLogger("midstream")


class Lease:
    """A lease that this process has taken."""

    def __init__(self, store: Store, number: int, holder: Holder) -> None:
        self.number = number
        self.holder = holder
        self._store = store
        self._beats = 0
        self._done = threading.Event()

    def keep(self, alive: Callable[[], bool]) -> None:
        """Beat in the background until ``alive`` says no; then give the lease back."""
        threading.Thread(target=self._keep, args=(alive,), name="midstream lease", daemon=True).start()

    def check(self) -> None:
        """Raise if another driver has taken the lease."""
        must_hold(self.number, _newest_number(self._store), self.holder)

    def release(self) -> None:
        """Give the lease back, so that the next driver need not wait."""
        if self._done.is_set():
            return
        try:
            self._store.put(_name(self.number, "released"), b"")
            self._done.set()
        except (OSError, MidstreamError) as error:
            # What ended the query is what its user must hear of, not this. The thread tries again.
            _log.warning("the lease of the checkpoint could not be given back: %s", error)

    def beat(self) -> None:
        """Say that the holder lives."""
        self._beats += 1
        self._store.put(_name(self.number, "beat"), str(self._beats).encode())

    def _keep(self, alive: Callable[[], bool]) -> None:
        while not self._done.wait(BEAT_EVERY):
            try:
                if _is_alive(alive):
                    self.beat()
                else:
                    self.release()
            except (OSError, MidstreamError) as error:
                # A disk that is full for a moment must not end the beating.
                _log.warning("the lease of the checkpoint could not be renewed: %s", error)


def take_lease(store: Store, run: str) -> Lease:
    """Take the lease of a checkpoint; an error that names both drivers if another one holds it."""
    now = datetime.now(UTC).isoformat(timespec="seconds")
    me = Holder(socket.gethostname(), _machine(), os.getpid(), run, now)
    while True:
        number = _newest_number(store)
        if number:
            _wait_for_end(store, number, me)
        lease = Lease(store, number + 1, me)
        # The beat comes first: a lease without one would look abandoned.
        lease.beat()
        if store.put_if_absent(_name(lease.number, "json"), msgspec.json.encode(me)):
            break
    for name in store.list(FOLDER):
        if 0 < _number(name) < lease.number - 1:
            store.delete(name)
    return lease


def _wait_for_end(store: Store, number: int, me: Holder) -> None:
    """Return once the holder has ended or is given up; raise as soon as it shows that it lives."""
    holder = _read_holder(store, number)
    gone = holder.machine == me.machine and not _runs(holder.pid)
    first = _last_beat(store, number)
    give_up = time.monotonic() + PATIENCE
    while not gone and time.monotonic() < give_up:
        if _name(number, "released") in store.list(FOLDER):
            return
        if _last_beat(store, number) != first:
            raise refuse(me, holder)
        time.sleep(_LOOK_EVERY)


def _read_holder(store: Store, number: int) -> Holder:
    name = _name(number, "json")
    try:
        return msgspec.json.decode(store.read(name).to_pybytes(), type=Holder)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
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
