"""The lease: who may work on a checkpoint, decided before any work is done.

Leases are numbered. Whoever writes the next number has it; the highest number is the one that counts. A
holder beats while it lives, says so when it is done, and looks before each commit whether a higher number
has appeared: then it was given up for dead, by somebody who has gone on, and must not commit any more.

    driver 1   take 7 ---- beat -- beat -- (paused) ..................... commit? no: 8 is there
    driver 2                                        take 8 --- beat --- commit
"""

from __future__ import annotations

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
            f"a driver must hold the newest lease to commit: {me} has {mine}",
            got=f"{newest}, taken by another driver",
            hint="this driver was silent for too long and is no longer needed; the other goes on",
        )
