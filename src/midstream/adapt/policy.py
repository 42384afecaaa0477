"""How a query migrates: of the ways to a plan that are open to it, the one that serves its goal best."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import inf
from typing import Literal

from midstream.adapt.estimate import Estimator
from midstream.adapt.migration_cost import UNNOTICEABLE_SLOWDOWN, MigrationCost, migration_costs
from midstream.adapt.statistics import half_window
from midstream.errors import OptionError
from midstream.migration.request import BACKGROUND, BackgroundChoice, Request, make_request
from midstream.plan.layout import Layout
from midstream.plan.tree import Plan
from midstream.query.query import Query
from midstream.state.statistics import Statistics

Goal = Literal["steady", "cheap", "quick"]
GOALS: tuple[Goal, ...] = ("steady", "cheap", "quick")


@dataclass(frozen=True)
class MigrationPolicy:
    """How a query migrates if nobody says otherwise."""

    strategy: str = "auto"
    background: bool = True
    goal: Goal = "steady"

    def request(
        self,
        query: Query,
        plan: str | Plan,
        strategy: str | None,
        *,
        background: BackgroundChoice | None,
        isolated: bool | None = None,
    ) -> Request:
        """A checked request for another plan; None means what this policy says."""
        if background is not None and background not in BACKGROUND:
            raise OptionError(f"background must be one of {', '.join(BACKGROUND)}", got=repr(background))
        computes = self.background if background is None else BACKGROUND[background]
        return make_request(query, plan, strategy or self.strategy, background=computes, isolated=isolated)


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
        known = "hybrid" if ends else "moving_state"
        wanted = known if policy.strategy == "auto" else policy.strategy
        return MigrationCost(wanted, policy.background, 0.0, 0.0, UNNOTICEABLE_SLOWDOWN)
    return pick(candidate_migrations(old, plan, Estimator(query, statistics), policy), policy.goal)


def pick(known: Iterable[MigrationCost], goal: Goal) -> MigrationCost:
    """The strategy that serves a goal best."""
    if goal == "quick":
        return min(known, key=lambda p: (p.seconds, p.work))
    if goal == "cheap":
        return min(known, key=lambda p: p.work)
    return min(known, key=lambda p: (p.delays, p.worst, p.work))
