"""How a query migrates: of the ways to a plan that are open to it, the one that serves its goal best."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import inf
from typing import Literal

from midstream.adapt.estimate import Estimator
from midstream.adapt.migration_cost import UNNOTICEABLE_SLOWDOWN, MigrationCost, migration_costs
from midstream.adapt.statistics import half_window
from midstream.migration.request import StrategyChoice
from midstream.plan.layout import Layout
from midstream.plan.tree import Plan
from midstream.query.query import Query
from midstream.state.migration import Strategy
from midstream.state.statistics import Statistics

Goal = Literal["steady", "cheap", "quick"]
GOALS: tuple[Goal, ...] = ("steady", "cheap", "quick")


@dataclass(frozen=True)
class MigrationPolicy:
    """How a query migrates if nobody says otherwise."""

    strategy: StrategyChoice = "auto"
    background: bool = True
    goal: Goal = "steady"


def candidate_migrations(
    old: Layout, plan: Plan, estimator: Estimator, policy: MigrationPolicy
) -> list[MigrationCost]:
    """The prices among which there is a choice."""
    known = migration_costs(old, plan, estimator)
    if not policy.background:
        known = [p for p in known if not p.background]
    if policy.strategy == "auto":
        return known
    chosen = [p for p in known if p.strategy == policy.strategy]
    # Background work is part of hybrid unless it is off. Some ways never end without a window: then others.
    return [p for p in chosen if p.background == policy.background] or chosen or known


def best_migration(
    old: Layout, plan: Plan, statistics: Statistics, query: Query, policy: MigrationPolicy
) -> MigrationCost:
    """The best way to a plan; as long as nothing is known of the streams, one that comes to an end."""
    if set(statistics.streams) != set(query.names):
        ends = policy.background or half_window(query) < inf
        known: Strategy = "hybrid" if ends else "moving_state"
        wanted = known if policy.strategy == "auto" else policy.strategy
        return MigrationCost(
            strategy=wanted,
            background=policy.background,
            work=0.0,
            seconds=0.0,
            peak_slowdown=UNNOTICEABLE_SLOWDOWN,
        )
    return pick(candidate_migrations(old, plan, Estimator(query, statistics), policy), policy.goal)


def pick(known: Iterable[MigrationCost], goal: Goal) -> MigrationCost:
    """The strategy that serves a goal best."""
    if goal == "quick":
        return min(known, key=lambda p: (p.seconds, p.work))
    if goal == "cheap":
        return min(known, key=lambda p: p.work)
    return min(known, key=lambda p: (p.delays_results, p.peak_slowdown, p.work))
