"""Taking and keeping a lease: its files in the store, and its heartbeat. Rules: protocol/lease.py.

    leases/<number>.json        the holder
    leases/<number>.beat        changes while the holder lives
    leases/<number>.released    the holder has ended

Whether a holder lives is seen by watching its heartbeat change, not by comparing times: the clocks of two
machines may differ. On the same machine it is enough that the holder's process no longer exists.
"""

from __future__ import annotations

import atexit
import logging
import os
import re
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import cache
from pathlib import Path

import msgspec

from midstream.errors import CheckpointError, MidstreamError
from midstream.protocol.lease import (
    HEARTBEAT_SECONDS,
    LEASE_TIMEOUT_SECONDS,
    Holder,
    check_held,
    locked_error,
    released_error,
)
from midstream.state.json_with_digest import UNREADABLE, reason_unreadable
from midstream.storage.manifest_log import close_log, manifest_files
from midstream.storage.store import Store

FOLDER = "leases"
_NAME = re.compile(rf"{FOLDER}/(\d{{12}})\.(json|beat|released)\Z")
_POLL_SECONDS = 0.1
_NO_COMMIT_PENDING, _COMMIT_PENDING = b"", b"unsettled"
"""The content of a ``released`` file: whether it is certain that no commit of the holder is under way."""
_log = logging.getLogger("midstream")


class Lease:
    """A lease that this process has taken."""

    def __init__(self, store: Store, number: int, holder: Holder) -> None:
        self.number = number
        self.holder = holder
        self._store = store
        self._heartbeats = 0
        self._done = threading.Event()
        self._commit_lock = threading.Lock()
        self._beat_lock = threading.Lock()
        self._released = False
        self._settled = True

    def start_heartbeat(self) -> None:
        """Beat in the background from now on, until the lease is released or this process ends."""
        atexit.register(self._stop_heartbeat)
        threading.Thread(target=self._beat_until_done, name="midstream lease", daemon=True).start()

    def check(self) -> None:
        """Raise if another driver has taken the lease."""
        check_held(self.number, _newest_number(self._store), self.holder)

    @contextmanager
    def holding(self) -> Iterator[None]:
        """For an operation that must not happen once the lease was released.

        Stopping a query does not stop the thread that runs its batch. A commit of that thread after the
        release would be as wrong as one of a driver that was fenced.
        """
        with self._commit_lock:
            if self._released:
                raise released_error(self.holder)
            # If this fails, a slow request may still arrive at the store later.
            self._settled = False
            yield
            self._settled = True

    def release(self) -> None:
        """Release the lease, so that the next driver need not wait; no heartbeat comes afterwards."""
        with self._commit_lock:
            self._released = True
        with self._beat_lock:
            if self._done.is_set():
                return
            try:
                if self._is_there():
                    pending = _NO_COMMIT_PENDING if self._settled else _COMMIT_PENDING
                    self._store.put(_name(self.number, "released"), pending)
                self._done.set()
            except FileNotFoundError:
                self._done.set()  # somebody is removing the checkpoint
            except (OSError, MidstreamError) as error:
                # Only logged: the user must see the error that ended the query. The thread tries again.
                _log.warning("the lease of the checkpoint could not be given back: %s", error)

    def heartbeat(self) -> None:
        """Show that the holder lives."""
        self._heartbeats += 1
        self._store.put(_name(self.number, "beat"), str(self._heartbeats).encode())

    def _beat_until_done(self) -> None:
        while not self._done.wait(HEARTBEAT_SECONDS):
            if self._released:
                self.release()
                continue
            with self._beat_lock:
                try:
                    self._beat_or_end()
                except FileNotFoundError:
                    pass  # somebody is removing the checkpoint; the next round sees that the lease is gone
                except (OSError, MidstreamError) as error:
                    # A disk that is full for a moment must not end the heartbeat.
                    _log.warning("the lease of the checkpoint could not be renewed: %s", error)
        atexit.unregister(self._stop_heartbeat)

    def _beat_or_end(self) -> None:
        if self._done.is_set():
            return  # it was released while this thread waited for the lock
        if self._is_there():
            self.heartbeat()
        else:
            self._done.set()

    def _is_there(self) -> bool:
        """False if somebody has removed the checkpoint: nothing must make it again."""
        return _name(self.number, "json") in self._store.list(FOLDER)

    def _stop_heartbeat(self) -> None:
        """At the end of the process: whoever removes the checkpoint then must not meet a heartbeat."""
        with self._beat_lock:
            self._done.set()


def acquire_lease(store: Store, run: str) -> Lease:
    """Take the lease of a checkpoint, and keep it by heartbeats; an error if another driver holds it."""
    lease = seize_lease(store, run, wait=True)
    lease.start_heartbeat()
    return lease


def seize_lease(store: Store, run: str, *, wait: bool = False) -> Lease:
    """Take the lease, without a heartbeat. Without ``wait`` it is taken from a living holder, too.

    This is for drivers that share a process, and replace each other on purpose.
    """
    now = datetime.now(UTC).isoformat(timespec="seconds")
    me = Holder(socket.gethostname(), _machine(), os.getpid(), run, now)
    while True:
        number = _newest_number(store)
        if number and wait:
            _wait_for_end(store, number, me)
        # If the folder of leases was removed, numbers must still grow: names of manifests have them.
        number = max(number, *(name.lease for name in manifest_files(store)), 0)
        lease = Lease(store, number + 1, me)
        # The heartbeat comes first: a lease without one would look abandoned.
        lease.heartbeat()
        name = _name(lease.number, "json")
        # If only the response was lost, the lease is ours.
        if store.put_if_absent(name, msgspec.json.encode(me)) or _read_holder(store, lease.number) == me:
            break
    _close_earlier_leases(store, lease.number)
    return lease


def has_leases(store: Store) -> bool:
    """Whether a lease of the store was ever taken, or about to be."""
    return any(_number(name) for name in store.list(FOLDER))


def _close_earlier_leases(store: Store, own_number: int) -> None:
    """Close the logs of earlier holders that may still commit, and delete files of old leases."""
    names = [name for name in store.list(FOLDER) if 0 < _number(name) < own_number]
    for number in sorted({_number(name) for name in names if name.endswith(".json")}):
        released = _name(number, "released")
        if released not in names or store.read(released).to_pybytes() != _NO_COMMIT_PENDING:
            close_log(store, number, own_number)
            store.put(released, _NO_COMMIT_PENDING)
    for name in names:
        if _number(name) < own_number - 1:
            store.delete(name)


def _wait_for_end(store: Store, number: int, me: Holder) -> None:
    """Return once the holder has ended or is fenced; raise as soon as it sends a heartbeat."""
    holder = _read_holder(store, number)
    if holder.machine == me.machine and not _process_exists(holder.pid):
        return
    first_heartbeat = _last_heartbeat(store, number)
    deadline = time.monotonic() + LEASE_TIMEOUT_SECONDS
    while time.monotonic() < deadline:
        if _name(number, "released") in store.list(FOLDER):
            return
        if _last_heartbeat(store, number) != first_heartbeat:
            raise locked_error(me, holder)
        time.sleep(_POLL_SECONDS)


def _read_holder(store: Store, number: int) -> Holder:
    name = _name(number, "json")
    try:
        return msgspec.json.decode(store.read(name).to_pybytes(), type=Holder)
    except UNREADABLE as error:
        hint = "if no query runs on the checkpoint, delete the file"
        raise CheckpointError(
            f"lease {name} must be readable", got=reason_unreadable(error), hint=hint
        ) from None


def _last_heartbeat(store: Store, number: int) -> bytes:
    name = _name(number, "beat")
    return store.read(name).to_pybytes() if name in store.list(FOLDER) else b""


def _newest_number(store: Store) -> int:
    return max((_number(name) for name in store.list(FOLDER) if name.endswith(".json")), default=0)


def _number(name: str) -> int:
    match = _NAME.match(name)
    return int(match[1]) if match else 0


def _name(number: int, kind: str) -> str:
    return f"{FOLDER}/{number:012d}.{kind}"


def _process_exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


@cache
def _machine() -> str:
    """The boot id of this machine and its namespace of process ids; without these, the name of the host."""
    boot_id, namespace = Path("/proc/sys/kernel/random/boot_id"), Path("/proc/self/ns/pid")
    if boot_id.exists() and namespace.exists():
        return f"{boot_id.read_text().strip()}/{namespace.stat().st_ino}"
    return socket.gethostname()
