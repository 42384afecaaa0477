"""The rules of the lease: who may work on a checkpoint. Taking and keeping one is in storage/lease.py.

Leases are numbered. The driver that writes the next number has it, and the highest number counts. A holder
sends heartbeats while it lives, and releases the lease when it is done. One that does neither for a while is
fenced, but may only have been paused. So it is not enough that a holder checks whether it still has the
lease: it may be paused right after the check. Instead, the number of the lease is in the names of what it
writes.

    driver 1   take 7 ---- beat -- beat -- (paused) ............................. commit 7-43? it is closed
    driver 2                                        take 8, close 7-43 --- beat --- commit 8-43

- *Commits.* The name of a manifest has the number of the lease. A driver that gives a holder up first takes
  the name that the holder would commit next (:mod:`midstream.storage.manifest_log`).
- *Deletions.* Names of slices and staged files have the number as well; a holder deletes none with a higher
  one. Temporary files are listed before a commit and deleted after it: a commit that succeeded proves that
  no other driver had taken over when they were listed.
- *Checks* are still made, before an epoch begins and before results are handed on: they save work.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Protocol

import msgspec

from midstream.errors import FencedError, LockedError

HEARTBEAT_SECONDS = 0.4
"""The time between heartbeats: a second driver sees one, and is refused, within a second."""
LEASE_TIMEOUT_SECONDS = 10.0
"""How long to wait for a heartbeat before a holder is fenced: longer than garbage collectors pause."""


class Holder(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The driver that holds a lease: where a person finds it."""

    host: str
    machine: str
    """Differs between machines and containers, in which the same process number is another process."""
    pid: int
    run: str
    since: str

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host} (run {self.run}, since {self.since})"


class LeaseHandle(Protocol):
    """A lease that this driver has taken, as code that works under it sees it."""

    @property
    def number(self) -> int:
        """Which lease it is: files that are written under it carry its number."""

    def check(self) -> None:
        """Raise if another driver has taken the lease."""

    def holding(self) -> AbstractContextManager[None]:
        """For an operation that must not happen once the lease was released."""


def locked_error(me: Holder, holder: Holder) -> LockedError:
    """The error for a driver that asks for a lease whose holder lives."""
    return LockedError(
        "a checkpoint must have one driver at a time",
        got=f"{me} while it is held by {holder}",
        hint="stop that one, or use another checkpointLocation",
    )


def check_held(number: int, newest: int, me: Holder) -> None:
    """Refuse to go on once another driver has taken the lease."""
    if newest > number:
        raise FencedError(
            f"a driver must hold the newest lease to go on: {me} has {number}",
            got=f"{newest}, taken by another driver",
            hint="this driver was silent for too long and is no longer needed; the other goes on",
        )


def released_error(me: Holder) -> FencedError:
    """The error for a driver that would commit after it has released its lease."""
    return FencedError(
        "a driver must hold its lease to commit",
        got=f"{me}, which has given it back",
        hint="the query was stopped while a batch was running; started again, it runs that batch again",
    )
