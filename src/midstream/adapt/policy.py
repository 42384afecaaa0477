"""How a query migrates: of the strategies that it may use, the one that serves its goal best."""

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
    """How a query migrates unless a request says otherwise."""

    strategy: StrategyChoice = "auto"
    background: bool = True
    """Whether the new plan's missing rows may be computed in the background."""
    goal: Goal = "steady"


def candidate_migrations(
    old: Layout, plan: Plan, estimator: Estimator, policy: MigrationPolicy
) -> list[MigrationCost]:
    """The migrations to a plan that a policy allows, with their costs."""
    migrations = migration_costs(old, plan, estimator)
    if not policy.background:
        migrations = [migration for migration in migrations if not migration.background]
    if policy.strategy == "auto":
        return migrations
    chosen = [migration for migration in migrations if migration.strategy == policy.strategy]
    # Background work is part of hybrid unless it is off. Without a window some strategies never end: then the
    # others are candidates.
    return [m for m in chosen if m.background == policy.background] or chosen or migrations


def best_migration(
    old: Layout, plan: Plan, statistics: Statistics, query: Query, policy: MigrationPolicy
) -> MigrationCost:
    """The best migration to a plan; as long as streams have no statistics, one that comes to an end."""
    if set(statistics.streams) != set(query.names):
        ends = policy.background or half_window(query) < inf
        fallback: Strategy = "hybrid" if ends else "moving_state"
        return MigrationCost(
            strategy=fallback if policy.strategy == "auto" else policy.strategy,
            background=policy.background,
            work=0.0,
            seconds=0.0,
            peak_slowdown=UNNOTICEABLE_SLOWDOWN,
        )
    return pick(candidate_migrations(old, plan, Estimator(query, statistics), policy), policy.goal)


def pick(migrations: Iterable[MigrationCost], goal: Goal) -> MigrationCost:
    """The migration that serves a goal best."""
    if goal == "quick":
        return min(migrations, key=lambda m: (m.seconds, m.work))
    if goal == "cheap":
        return min(migrations, key=lambda m: m.work)
    return min(migrations, key=lambda m: (m.delays_results, m.peak_slowdown, m.work))
