"""Rescaling in a simulated run: users ask for other numbers of engine partitions, at starts and between.

The promise *partitions*: a request that was taken is applied by the first epoch that is begun after it,
unless a later one has taken its place; and no number is applied that nobody has asked for.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

from midstream.inline import InlineJoin
from midstream.protocol.intent import Intent
from midstream.protocol.settings import Settings
from midstream.testing.outcome import SimulationOutcome


@dataclass(eq=False)
class _Request:
    partitions: int
    taken: bool = False
    """Whether the driver has confirmed it. Until then, or if it fails, it may be applied or not."""
    applied_by: int | None = None
    """The epoch that has applied it, or a later one in its place."""


class Rescales:
    """What is asked for, and whether it is done."""

    def __init__(self, outcome: SimulationOutcome, *, may_ask: bool = True) -> None:
        """Nobody may ask if streams live at sites, which have the partitions that they have."""
        # Drawn separately, so that seeds differ only where somebody asks.
        self._user = random.Random(f"rescales {outcome.seed}")  # noqa: S311  # it must be reproducible
        self.rate = self._user.choice((0.0, 0.0, 0.2, 0.5))
        self._meanwhile = random.Random(f"rescales meanwhile {outcome.seed}")  # noqa: S311  # it must be reproducible
        self.rate_meanwhile = self._meanwhile.choice((0.0, 0.0, 0.01, 0.03))
        if not may_ask:
            self.rate = self.rate_meanwhile = 0.0
        self._outcome = outcome
        self._requests: list[_Request] = []

    def at_start(self, settings: Settings) -> Settings:
        """The settings that a query is started with, sometimes with another number of partitions."""
        if self._user.random() < self.rate:
            settings = replace(settings, partitions=self._draw(settings), shares=())
        if settings.partitions is not None:
            # If that is not the number to come, the start requests it, and may fail at any time.
            self._requests.append(_Request(settings.partitions))
        return settings

    def is_asked_for(self) -> bool:
        """Whether somebody asks for another number before the next epoch."""
        return self._user.random() < self.rate

    def is_asked_for_meanwhile(self) -> bool:
        """Whether another thread asks for another number now, while an epoch runs."""
        return self._meanwhile.random() < self.rate_meanwhile

    def ask(self, query: InlineJoin, *, others_paused: bool) -> None:
        """Ask a running query, while other drivers are paused or not.

        One that was paused may wake up just in time to begin the next epoch, which knows of no request then.
        """
        request = _Request(self._draw(query.coordinator.settings))
        self._requests.append(request)
        query.rescale(request.partitions)
        if not others_paused:
            request.taken = True
            # It takes the place of all that came before it.
            self._requests = [r for r in self._requests if r is request or r.applied_by is not None]

    def begin(self, intent: Intent) -> str | None:
        """An epoch is begun; returns how *partitions* is broken, or None."""
        waiting = [request for request in self._requests if request.applied_by is None]
        allowed = {request.partitions for request in waiting if not request.taken}
        taken = [request for request in waiting if request.taken]
        allowed |= {request.partitions for request in taken[-1:]}
        if intent.partitions is None and intent.waiting_partitions in allowed:
            return None  # until a replacement has ended
        if intent.partitions not in (allowed if taken else allowed | {None}):
            return f"epoch {intent.epoch} runs in {intent.partitions} partitions, not {sorted(allowed)}"
        if intent.partitions is not None:
            self._outcome.features.add("another number of partitions")
            for request in waiting:
                if request.taken or request.partitions == intent.partitions:
                    request.applied_by = intent.epoch
        return None

    def undo(self, intent: Intent) -> None:
        """An intent was replaced before its epoch ran: the request in it still waits."""
        for request in self._requests:
            if request.applied_by == intent.epoch:
                request.applied_by = None

    def _draw(self, settings: Settings) -> int:
        return self._user.randint(1, min(settings.groups, 6))
