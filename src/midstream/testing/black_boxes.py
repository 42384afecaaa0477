"""Users of the simulator who change the plan by black boxes: results must be those of a query left alone."""

from __future__ import annotations

import random
from collections.abc import Callable

from midstream.errors import OptionError, QueryError
from midstream.inline import InlineJoin
from midstream.migration.strategies import BLACK_BOX_STRATEGIES
from midstream.testing.draw_plans import draw_plan
from midstream.testing.faults import faults_survived
from midstream.testing.outcome import SimulationOutcome


class BlackBoxRequester:
    """Asks for another plan now and then, by one of the black-box strategies."""

    def __init__(self, seed: int, outcome: SimulationOutcome) -> None:
        # Drawn separately, so that seeds have the same rows and faults with and without them.
        self._rng = random.Random(f"boxes {seed}")  # noqa: S311  # it must be reproducible
        self._rate = self._rng.choice((0.0, 0.0, 0.3))
        self._outcome = outcome

    def maybe_ask(self, query: InlineJoin, is_fenced: Callable[[], bool]) -> None:
        """Ask, unless the query cannot have another plan now."""
        if self._rng.random() >= self._rate:
            return
        if query.query.aggregation is not None and query.coordinator.settings.memory is not None:
            return  # what each of two boxes owes holds back windows of its own
        plan = draw_plan(self._rng, query.query.names)
        strategy = self._rng.choice(sorted(BLACK_BOX_STRATEGIES))
        with faults_survived(is_fenced):
            try:
                query.migrate(plan, strategy)
            except (OptionError, QueryError):
                return
            self._outcome.features.add(f"{strategy} asked for")
