"""Drains in a simulated run: users have what spilled groups owe made in epochs without a batch.

A drain runs beside the batches, in the thread of the user who asked for it. If it fails, that user gets the
error, and the query goes on.
"""

from __future__ import annotations

import random

from midstream.inline import InlineJoin
from midstream.testing.faults import FaultStore
from midstream.testing.outcome import SimulationOutcome

_MORE_ERRORS = 10
"""How much more often a call fails in a drain: there are few of them."""


class Drains:
    """When a drain is asked for, and what becomes of it."""

    def __init__(self, store: FaultStore, outcome: SimulationOutcome) -> None:
        # Drawn separately, so that seeds differ only where there is a drain.
        self._user = random.Random(f"drains {outcome.seed}")  # noqa: S311  # it must be reproducible
        self.left = self._user.choice((0, 3, 6))
        """How often one is asked for at most."""
        self._store = store
        self._outcome = outcome

    def is_asked_for(self, query: InlineJoin) -> bool:
        """Whether a user asks for one now."""
        if not self.left or not query.coordinator.owes(query.manifest) or self._user.random() < 0.5:
            return False
        self.left -= 1
        return True

    def run(self, query: InlineJoin, now: int) -> bool:
        """Run an epoch without rows; False if one with rows was begun before, or if it fails and is over."""
        error_rate = self._store.error_rate
        self._store.error_rate *= _MORE_ERRORS
        try:
            if query.run_drain_epoch(now=now) is None:
                return False
        except OSError as error:
            if "simulated" not in str(error) or self._user.random() < 0.5:
                raise
            self._outcome.features.add("a drain that failed")
            return False
        finally:
            self._store.error_rate = error_rate
        self._outcome.features.add("an epoch without rows")
        return True
