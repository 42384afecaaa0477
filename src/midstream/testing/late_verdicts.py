"""Late verdicts: deciding beside the epochs, but in one thread, so that a seed always does the same.

The runs of the simulator are short, and seldom give a reason to change the plan. So some verdicts are whims:
they change to a plan that is drawn. Whatever is decided, results must be right.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial

from msgspec.structs import replace as replace_struct

from midstream.query.query import Query
from midstream.runtime.plan_decider import Decide, PlanDecider, TimedDecision, timed_decision
from midstream.state.adaptation import Decision, Verdict
from midstream.state.manifest import Manifest
from midstream.testing.draw_plans import draw_plan, draw_request
from midstream.testing.draw_sites import draw_sited_plan


def late_verdicts(seed: int, query: Query) -> Callable[[Decide], PlanDecider]:
    """How the drivers of a seed decide."""
    rng = random.Random(f"verdicts {seed}")  # noqa: S311  # it must be reproducible
    late_rate, whim_rate = rng.choice((0.0, 0.4, 0.7)), rng.choice((0.0, 0.2, 0.5))
    return partial(LateVerdicts, query=query, rng=rng, late_rate=late_rate, whim_rate=whim_rate)


@dataclass
class LateVerdicts:
    """Verdicts that may be there only some epochs after the statistics that they follow from."""

    decide: Decide
    query: Query
    rng: random.Random
    late_rate: float
    """How likely it is that a verdict is not there yet when it is asked for."""
    whim_rate: float
    """How likely it is that another plan is drawn."""
    decides_from: Manifest | None = field(default=None, init=False)

    def begin(self, manifest: Manifest) -> None:
        """Decide from this manifest, unless what was begun before is still under way."""
        self.decides_from = self.decides_from or manifest

    def take(self) -> TimedDecision | None:
        """The outcome, if it is not late."""
        if self.decides_from is None or self.rng.random() < self.late_rate:
            return None
        manifest, self.decides_from = self.decides_from, None
        decided = timed_decision(self.decide, manifest)
        is_changing = manifest.migration is not None or manifest.replacement is not None
        if manifest.epoch < 0 or is_changing or self.rng.random() >= self.whim_rate:
            return decided
        return replace(decided, verdict=self._whim(manifest))

    def close(self) -> None:
        """Do nothing."""

    def _whim(self, manifest: Manifest) -> Verdict | None:
        draw = draw_plan if self.query.topology is None else draw_sited_plan
        plan = draw(self.rng, self.query.names)
        if str(plan) == manifest.plan:
            return None
        request = draw_request(self.rng, self.query, plan)
        decision = Decision(
            epoch=manifest.epoch,
            verdict="migrate",
            reason="on a whim",
            plan=manifest.plan,
            cost=1.0,
            best_plan=str(plan),
            best_cost=0.0,
            strategy=request.strategy,
            background=request.background,
            isolated=bool(request.isolated),
        )
        return Verdict(manifest.epoch, replace_struct(manifest.adaptation, last_decision=decision))
