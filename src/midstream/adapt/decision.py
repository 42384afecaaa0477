"""The decision: whether to change the plan now, from committed statistics alone.

A plan is changed if another one is cheaper by a margin, and if what that saves over a horizon pays for the
migration with a margin. Nothing is compared before something has changed since the last decision, or a
while has passed. After a migration there is calm for a window. If it is soon followed by another one, the
streams change faster than plans can follow, or seem to: each time that doubles the calm and halves the
horizon.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations

from msgspec.structs import replace

from midstream.adapt.estimate import Estimator
from midstream.adapt.optimizer import best_plan
from midstream.adapt.plan_cost import plan_cost, probe_steps
from midstream.adapt.policy import MigrationPolicy, candidate_migrations, pick
from midstream.adapt.statistics import half_window
from midstream.plan.build_layout import build_layout
from midstream.plan.default_plan import default_plan
from midstream.plan.layout import Layout
from midstream.plan.tree import Plan, join, leaf
from midstream.query.query import Query
from midstream.state.adaptation import Adaptation, Decision
from midstream.state.statistics import Statistics

# A figure has changed if it is this many times larger or smaller.
_CHANGE_THRESHOLD = math.log(1.35)
# The other plan must cost at most this share of the running one, and less the less sure estimates are.
_MARGIN = 0.85
_MARGIN_PER_DOUBT = 0.6
# What is saved must be this many times what the migration costs.
_MIN_SAVING_PER_COST = 1.5
# In windows: how long savings are counted, when to compare again at the earliest, when though nothing
# changed, and what is soon.
_HORIZON_WINDOWS = 4.0
_MIN_WINDOWS_BETWEEN_COMPARISONS = 0.125
_RECHECK_WINDOWS = 2.0
_SOON_WINDOWS = 4.0
_MOST_PATIENCE = 16.0
# Of how many rows, faded, a stream is known.
_MIN_ROWS_KNOWN = 0.05


@dataclass(frozen=True)
class DecisionContext:
    """What a decision is made from: the plan that runs alone, and what is known of its streams."""

    query: Query
    layout: Layout
    statistics: Statistics
    partitions: int
    epoch: int

    @property
    def now(self) -> float:
        """Seconds of event time since the first statistics."""
        return self.statistics.elapsed

    @cached_property
    def window(self) -> float:
        """The longest window in seconds; without one, a quarter of the time that has passed."""
        half = half_window(self.query)
        return 2 * half if half < math.inf else max(self.now / 4, 1.0)

    @cached_property
    def estimator(self) -> Estimator:
        """Estimates from the statistics."""
        return Estimator(self.query, self.statistics)

    @cached_property
    def figures(self) -> dict[str, float]:
        """What a change is seen by: the rate of each stream, and how well each pair of streams joins."""
        rates = {name: self.estimator.rate((name,)) for name in self.query.names}
        joins = {" and ".join(pair): self.estimator.selectivity(pair).value for pair in self.pairs}
        return {**rates, **joins}

    @cached_property
    def pairs(self) -> list[tuple[str, str]]:
        """The streams that have a key in common."""
        pairs = list(combinations(self.query.names, 2))
        return [(a, b) for a, b in pairs if any({a, b} <= c.streams for c in self.query.classes)] or pairs

    def is_known(self) -> bool:
        """Whether there are figures of every stream."""
        known = self.statistics.streams
        return all(name in known and known[name].rows > _MIN_ROWS_KNOWN for name in self.query.names)


def decide(decision_context: DecisionContext, known: Adaptation, policy: MigrationPolicy) -> Adaptation:
    """What is decided after an epoch."""
    now, window = decision_context.now, decision_context.window
    if now < max(known.cooldown_until, window / 2) or not decision_context.is_known():
        return known
    asked = known.asked == str(decision_context.layout.plan)
    if asked and not known.baseline:
        # What a user asked for is a decision too, and stands until something changes.
        return replace(known, baseline=decision_context.figures)
    if known.last is not None and now - known.at < _MIN_WINDOWS_BETWEEN_COMPARISONS * window:
        return known
    changed = _changes(known.baseline, decision_context)
    if not changed and (asked or (known.last is not None and now - known.at < _RECHECK_WINDOWS * window)):
        return known
    decision = _compare(decision_context, changed, _HORIZON_WINDOWS * window / known.patience, policy)
    if decision.verdict == "stay":
        return replace(known, last=decision, at=now, baseline=decision_context.figures)
    soon = known.migrated is not None and now - known.migrated < _SOON_WINDOWS * window * known.patience
    patience = min(2 * known.patience, _MOST_PATIENCE) if soon else max(1.0, known.patience / 2)
    return Adaptation(
        last=decision,
        at=now,
        baseline=decision_context.figures,
        cooldown_until=now + window * patience,
        patience=patience,
        migrated=now,
    )


def after_migration(decision_context: DecisionContext, known: Adaptation) -> Adaptation:
    """While a migration is under way or has just ended: there is calm for a while."""
    calm = max(known.cooldown_until, decision_context.now + decision_context.window * known.patience / 2)
    return replace(known, cooldown_until=calm)


def _compare(
    decision_context: DecisionContext, changed: tuple[str, ...], horizon: float, policy: MigrationPolicy
) -> Decision:
    query, estimator, partitions = (
        decision_context.query,
        decision_context.estimator,
        decision_context.partitions,
    )
    running = decision_context.layout.plan
    cost = plan_cost(running, estimator, partitions)
    best = best_plan(estimator, partitions)
    # Plans that people would think of: as the query is written, and one node for all.
    others = (default_plan(query), join(*(leaf(name) for name in query.names)))
    price = pick(candidate_migrations(decision_context.layout, best.plan, estimator, policy), policy.goal)
    confidence = min(
        estimator.estimate(streams).confidence
        for plan in (running, best.plan)
        for streams in _joins(query, plan)
    )
    margin = _MARGIN - _MARGIN_PER_DOUBT * (1 - confidence)
    cheaper = best.cost <= margin * cost
    pays = (cost - best.cost) * horizon >= _MIN_SAVING_PER_COST * price.work
    share = 1 - best.cost / max(cost, 1e-9)
    if str(best.plan) == str(running):
        reason = "the running plan is the best known"
    elif not cheaper:
        reason = f"the best plan saves {max(share, 0):.0%}, and must save {1 - margin:.0%}"
    elif not pays:
        reason = f"the best plan saves {share:.0%}, which does not pay for the migration"
    else:
        reason = f"the best plan saves {share:.0%}"
    return Decision(
        epoch=decision_context.epoch,
        verdict="migrate" if cheaper and pays else "stay",
        reason=reason,
        plan=str(running),
        cost=cost,
        best=str(best.plan),
        best_cost=best.cost,
        strategy=price.strategy,
        background=price.background,
        isolated=price.isolated,
        price=max(0.0, float(price.work)),
        horizon=horizon,
        compared={str(plan): plan_cost(plan, estimator, partitions) for plan in others},
        changed=changed,
    )


def _joins(query: Query, plan: Plan) -> Iterator[frozenset[str]]:
    """The sets of streams whose joins a plan makes, in its states and on the way to them."""
    for fragment in build_layout(query, plan).fragments:
        for node in fragment.nodes:
            for step in probe_steps(node):
                yield step.matched


def _changes(before: Mapping[str, float], decision_context: DecisionContext) -> tuple[str, ...]:
    """What has changed by more than chance, for people to read."""
    found = []
    confidence = {
        " and ".join(pair): decision_context.estimator.selectivity(pair).confidence
        for pair in decision_context.pairs
    }
    for name, value in decision_context.figures.items():
        was = before.get(name)
        if was is None:
            continue
        chance = 1 / max(confidence.get(name, 1.0), 0.01) - 1
        if abs(math.log(max(value, 1e-30) / max(was, 1e-30))) < _CHANGE_THRESHOLD + 2 * chance:
            continue
        what = "match" if name in confidence else "rate"
        found.append(f"{what} of {name}: {value / max(was, 1e-30):.2g} x")
    return tuple(found)
