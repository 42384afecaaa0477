"""The plan that costs least of all, by enumeration.

Sequences do not share anything in the cost model, so each is found by itself: all orders and placements,
without those that already cost more than the best one so far. It takes (m-1)! 2^(m-1) sequences per head at
most, so it is for few streams. The greedy plan is where it begins.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import inf

from midstream.errors import PlanError
from midstream.plan.sited_plan import DESTINATION, SOURCE, JoinSequence, Placement, SitedPlan
from midstream.sites.cost import FlowFigures, SiteCostModel, StreamFigures
from midstream.sites.greedy import greedy_sequence

MAX_STREAMS = 6
"""With 6 streams there are 3,840 sequences per head, which takes some milliseconds; with 8, 645,120."""

_Chosen = tuple[tuple[str, Placement], ...]


def optimal_sequence(model: SiteCostModel, figures: Mapping[str, StreamFigures], head: str) -> JoinSequence:
    """The sequence of one head that costs least."""
    best = greedy_sequence(model, figures, head)
    best_cost = model.sequence_cost(best, figures)

    def search(flow: FlowFigures, rest: frozenset[str], chosen: _Chosen, cost: float) -> None:
        nonlocal best, best_cost
        if not rest:
            best_cost = cost
            best = JoinSequence(head, tuple(s for s, _ in chosen), tuple(p for _, p in chosen))
            return
        for stream in (name for name in model.topology.site_of if name in rest):
            costs = model.costs(flow, stream, figures[stream])
            for placement in (SOURCE, DESTINATION):
                if cost + costs[placement] < best_cost:
                    after = model.join(flow, stream, figures[stream], placement)
                    extended = (*chosen, (stream, placement))
                    search(after, rest - {stream}, extended, cost + costs[placement])

    others = frozenset(model.topology.site_of) - {head}
    search(model.start(head, figures[head]), others, (), 0.0)
    return best


def optimal_plan(model: SiteCostModel, figures: Mapping[str, StreamFigures]) -> SitedPlan:
    """The best sequences of all heads, of up to :data:`MAX_STREAMS` streams."""
    count = len(model.topology.site_of)
    if count > MAX_STREAMS:
        raise PlanError(
            f"the best plan must be one of at most {MAX_STREAMS} streams",
            got=f"{count} streams",
            hint="take the greedy plan: there are too many plans to look at all of them",
        )
    return SitedPlan(tuple(optimal_sequence(model, figures, head) for head in model.topology.site_of))


def gap(model: SiteCostModel, figures: Mapping[str, StreamFigures], plan: SitedPlan) -> float:
    """How many times as much as the best plan a plan costs."""
    best = model.plan_cost(optimal_plan(model, figures), figures)
    return model.plan_cost(plan, figures) / best if best else inf
