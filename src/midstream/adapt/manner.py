"""How a query migrates: of the ways to a plan that are open to it, the one that serves its goal best."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import inf
from typing import Literal

from midstream.adapt.estimate import Estimator
from midstream.adapt.price import UNNOTICED, Price, prices
from midstream.adapt.statistics import half_window
from midstream.migration.request import Wanted
from midstream.plan.layout import Layout
from midstream.plan.tree import Plan
from midstream.query.query import Query
from midstream.state.migration import Strategy
from midstream.state.statistics import Statistics

Goal = Literal["steady", "cheap", "quick"]
GOALS: tuple[Goal, ...] = ("steady", "cheap", "quick")


@dataclass(frozen=True)
class Manner:
    """How a query migrates if nobody says otherwise."""

    strategy: Wanted = "auto"
    background: bool = True
    goal: Goal = "steady"


def affordable(old: Layout, plan: Plan, estimator: Estimator, manner: Manner) -> list[Price]:
    """The prices among which there is a choice."""
    known = prices(old, plan, estimator)
    if not manner.background:
        known = [p for p in known if not p.background]
    if manner.strategy == "auto":
        return known
    chosen = [p for p in known if p.strategy == manner.strategy]
    # Background work is part of hybrid unless it is off. Some ways never end without a window: then others.
    return [p for p in chosen if p.background == manner.background] or chosen or known


def price_of(old: Layout, plan: Plan, statistics: Statistics, query: Query, manner: Manner) -> Price:
    """The best way to a plan; as long as nothing is known of the streams, one that comes to an end."""
    if set(statistics.streams) != set(query.names):
        ends = manner.background or half_window(query) < inf
        known: Strategy = "hybrid" if ends else "moving_state"
        wanted = known if manner.strategy == "auto" else manner.strategy
        return Price(wanted, manner.background, 0.0, 0.0, UNNOTICED)
    return choose(affordable(old, plan, Estimator(query, statistics), manner), manner.goal)


def choose(known: Iterable[Price], goal: Goal) -> Price:
    """The strategy that serves a goal best."""
    if goal == "quick":
        return min(known, key=lambda p: (p.seconds, p.work))
    if goal == "cheap":
        return min(known, key=lambda p: p.work)
    return min(known, key=lambda p: (p.delays, p.worst, p.work))
