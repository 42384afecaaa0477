"""The lease: who may work on a checkpoint, decided before any work is done.

Leases are numbered. Whoever writes the next number has it; the highest number is the one that counts. A
holder beats while it lives, says so when it is done, and looks before each commit whether a higher number
has appeared: then it was given up for dead, by somebody who has gone on, and must not commit any more.

    driver 1   take 7 ---- beat -- beat -- (paused) ..................... commit? no: 8 is there
    driver 2                                        take 8 --- beat --- commit
"""

from __future__ import annotations

import msgspec

from midstream.errors import CheckpointError

BEAT_EVERY = 1.0
"""Seconds between beats."""
BEAT_LASTS = 10.0
"""Seconds after which a holder that has not beaten is given up: pauses of a collector are shorter."""


class Holder(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A driver, as a person can find it."""

    host: str
    pid: int
    run: str
    since: str

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host} (run {self.run}, since {self.since})"


class LeaseState(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is known of the highest lease."""

    number: int
    holder: Holder
    released: bool
    silence: float
    """Seconds since its last beat."""
    gone: bool
    """Whether its process is known to have ended, which only the same machine can know."""


class LockedError(CheckpointError):
    """Another driver works on the checkpoint."""


class FencedError(CheckpointError):
    """This driver was given up for dead, and another has gone on."""


def next_lease(newest: LeaseState | None, me: Holder) -> int:
    """The number to take; an error if somebody holds the lease and lives."""
    if newest is None:
        return 1
    if not newest.released and not newest.gone and newest.silence < BEAT_LASTS:
        raise LockedError(
            "a checkpoint must have one driver at a time",
            got=f"{me} while it is held by {newest.holder}",
            hint=f"stop that one; if it died, wait {BEAT_LASTS:.0f} seconds",
        )
    return newest.number + 1


def must_hold(mine: int, newest: int, me: Holder) -> None:
    """Refuse to go on once somebody else has taken the lease."""
    if newest > mine:
        raise FencedError(
            f"a driver must hold the newest lease to commit: {me} has {mine}",
            got=f"{newest}, taken by another driver",
            hint="this driver was silent for too long and is no longer needed; the other goes on",
        )
