"""The lease: who may work on a checkpoint, decided before any work is done.

Leases are numbered. Whoever writes the next number has it; the highest number is the one that counts. A
holder beats while it lives, and says so when it is done. One that does neither for a while is given up for
dead, but may only have been paused. So nothing that a holder does rests on its having looked whether it still
holds the lease: it may be paused right after. Its number is part of what it does.

    driver 1   take 7 ---- beat -- beat -- (paused) ............................. commit 7-43? it is closed
    driver 2                                        take 8, close 7-43 --- beat --- commit 8-43

- *Commits.* The name of a manifest has the number of the lease. Whoever gives a holder up takes the name that
  it would commit next (:mod:`midstream.storage.manifest_log`), and only then begins to work.
- *Deletions.* Names of slices and staged files have the number as well; a holder deletes none with a higher
  one. Temporary files are listed before a commit and deleted after it: a commit that succeeded proves that
  nobody had taken over when they were listed.
- *Looking* is still done, before an epoch begins and before results are handed on: it saves work.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Protocol

import msgspec

from midstream.errors import FencedError, LockedError

BEAT_EVERY = 0.4
"""Seconds between beats: whoever asks sees one, and is refused, within a second."""
PATIENCE = 10.0
"""Seconds to wait for a beat before a holder is given up: pauses of a collector are shorter."""


class Holder(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A driver, as a person can find it."""

    host: str
    machine: str
    """Tells apart machines, and containers, in which the same process number means another process."""
    pid: int
    run: str
    since: str

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host} (run {self.run}, since {self.since})"


class LeaseHandle(Protocol):
    """A lease that this driver has taken, as far as those need it who work under it."""

    @property
    def number(self) -> int:
        """Which lease it is: files that are written under it carry its number."""

    def check(self) -> None:
        """Raise if another driver has taken the lease."""

    def holding(self) -> AbstractContextManager[None]:
        """Do something that must not happen once the lease was given back."""


def refuse(me: Holder, holder: Holder) -> LockedError:
    """The error for a driver that asks for a lease whose holder lives."""
    return LockedError(
        "a checkpoint must have one driver at a time",
        got=f"{me} while it is held by {holder}",
        hint="stop that one, or use another checkpointLocation",
    )


def must_hold(mine: int, newest: int, me: Holder) -> None:
    """Refuse to go on once somebody else has taken the lease."""
    if newest > mine:
        raise FencedError(
            f"a driver must hold the newest lease to go on: {me} has {mine}",
            got=f"{newest}, taken by another driver",
            hint="this driver was silent for too long and is no longer needed; the other goes on",
        )


def released(me: Holder) -> FencedError:
    """The error for a driver that has given its lease back and would go on all the same."""
    return FencedError(
        "a driver must hold its lease to commit",
        got=f"{me}, which has given it back",
        hint="the query was stopped while a batch was running; started again, it runs that batch again",
    )
