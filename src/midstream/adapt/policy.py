"""How a query migrates: of the strategies that it may use, the one that serves its goal best."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from math import inf
from typing import Literal

from midstream.adapt.estimate import Estimator
from midstream.adapt.migration_cost import UNNOTICEABLE_SLOWDOWN, MigrationCost, migration_costs
from midstream.adapt.statistics import decay_seconds
from midstream.errors import OptionError, show_value
from midstream.migration.request import BACKGROUND, BackgroundChoice, MigrationRequest, make_request
from midstream.migration.strategies import AUTO, STRATEGIES
from midstream.plan.layout import Layout
from midstream.plan.tree import Plan
from midstream.query.query import Query
from midstream.state.statistics import Statistics

Goal = Literal["steady", "cheap", "quick"]


@dataclass(frozen=True)
class MigrationPolicy:
    """How a query migrates unless a request says otherwise."""

    strategy: str = AUTO
    background: bool = True
    """Whether the new plan's missing rows may be computed in the background."""
    goal: Goal = "steady"

    def request(
        self,
        query: Query,
        plan: str | Plan,
        strategy: str | None,
        *,
        background: BackgroundChoice | None,
        isolated: bool | None = None,
    ) -> MigrationRequest:
        """A checked request for another plan; None means what this policy says."""
        if background is not None and background not in tuple(BACKGROUND):
            must = f"background must be one of {', '.join(BACKGROUND)}"
            raise OptionError(must, got=show_value(background))
        computes = self.background if background is None else BACKGROUND[background]
        return make_request(query, plan, strategy or self.strategy, background=computes, isolated=isolated)


def allowed_migrations(
    old: Layout, plan: Plan, estimator: Estimator, policy: MigrationPolicy
) -> list[MigrationCost]:
    """The migrations to a plan that a policy allows, with their costs."""
    migrations = migration_costs(old, plan, estimator)
    if not policy.background:
        migrations = [migration for migration in migrations if not migration.background]
    if policy.strategy == AUTO:
        return migrations
    chosen = [migration for migration in migrations if migration.strategy == policy.strategy]
    # Background work is part of hybrid unless it is off. Without a window some strategies never end: then the
    # others are candidates.
    return [m for m in chosen if m.background == policy.background] or chosen or migrations


def best_migration(
    old: Layout, plan: Plan, statistics: Statistics, query: Query, policy: MigrationPolicy
) -> MigrationCost:
    """The best migration to a plan; as long as streams have no statistics, one that comes to an end."""
    if not all(name in statistics.streams and statistics.streams[name].rows for name in query.names):
        return MigrationCost(
            strategy=_first_that_ends(query, policy) if policy.strategy == AUTO else policy.strategy,
            background=policy.background,
            work=0.0,
            seconds=0.0,
            peak_slowdown=UNNOTICEABLE_SLOWDOWN,
        )
    return pick(allowed_migrations(old, plan, Estimator(query, statistics), policy), policy.goal)


def _first_that_ends(query: Query, policy: MigrationPolicy) -> str:
    expires = decay_seconds(query) < inf
    waits = {s.name: s.waits_for_expiry(background=policy.background) for s in STRATEGIES.values()}
    return next(name for name, waiting in waits.items() if expires or not waiting)


def pick(migrations: Iterable[MigrationCost], goal: Goal) -> MigrationCost:
    """The migration that serves a goal best."""
    return min(migrations, key=_RANKS[goal])


_RANKS: dict[Goal, Callable[[MigrationCost], tuple[float, ...]]] = {
    "steady": lambda m: (m.defers_results, m.peak_slowdown, m.work),
    "cheap": lambda m: (m.work,),
    "quick": lambda m: (m.seconds, m.work),
}
GOALS: tuple[Goal, ...] = tuple(_RANKS)
