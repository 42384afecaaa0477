"""The best plan: over all trees, of nodes with any number of inputs, by what they would cost.

While the connected sets of streams and the ways to divide them are few enough, all of them are compared
(``exhaustive_search.py``). How many streams that are depends on how keys connect them: of a chain ten and
more, of a clique eight. Otherwise a search that looks at a part of them finds a plan that costs hardly more
(``iterative_search.py``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from midstream.adapt.estimate import Estimator
from midstream.adapt.exhaustive_search import ExhaustiveSearch
from midstream.adapt.input_order import best_order
from midstream.adapt.iterative_search import search_iteratively
from midstream.adapt.join_graph import JoinGraph
from midstream.adapt.plan_cost import plan_cost
from midstream.adapt.search_budget import COMBINATIONS_PER_EFFORT, SearchBudget
from midstream.adapt.single_partition import SinglePartition, max_unplaced_bytes
from midstream.adapt.stream_sets import StreamMask
from midstream.adapt.subplan_cost import Subplan, SubplanCosts
from midstream.plan.tree import Plan, join, leaf

MAX_COMBINATIONS = 250_000
"""What may be looked at to find the best plan of all: at most about a second of the processor."""
# What may be looked at to order the inputs of its nodes.
_MOST_FOR_ORDERING = 40_000


@dataclass(frozen=True)
class CostedPlan:
    """A plan and what it costs in units per second."""

    plan: Plan
    cost: float


def best_plan(
    estimator: Estimator,
    partitions: int,
    rule: SinglePartition = "auto",
    most_combinations: int = MAX_COMBINATIONS,
) -> CostedPlan:
    """The plan that costs least, by the estimates, of those whose nodes in one partition are allowed."""
    costs = SubplanCosts(estimator, partitions, max_unplaced_bytes(estimator.query, partitions, rule))
    subplans = _best_of_all(costs, most_combinations) or search_iteratively(costs)
    budget = SearchBudget(costs.sets, _MOST_FOR_ORDERING)
    plan = _as_plan(costs, costs.sets.all_streams, subplans, budget)
    return CostedPlan(plan, plan_cost(plan, estimator, partitions))


def _best_of_all(costs: SubplanCosts, most_combinations: int) -> Mapping[StreamMask, Subplan] | None:
    """The best subplans of all connected sets; None if there are too many of them to compare."""
    streams = costs.sets.streams
    budget = SearchBudget(costs.sets, most_combinations)
    graph = JoinGraph(costs.sets, streams)
    connected, to_estimate = [], 0
    for members in graph.connected_sets(len(streams), len(streams)):
        to_estimate += costs.sets.effort(graph.streams_of(members))
        if COMBINATIONS_PER_EFFORT * to_estimate > budget.left:
            return None
        connected.append(members)
    divisions = ExhaustiveSearch(costs, graph, {stream: Subplan() for stream in streams}, budget)
    return divisions.best if divisions.search(connected) else None


def _as_plan(
    costs: SubplanCosts, members: StreamMask, subplans: Mapping[StreamMask, Subplan], budget: SearchBudget
) -> Plan:
    inputs = subplans[members].inputs
    if not inputs:
        return leaf(costs.sets.names_of(members)[0])
    return join(*(_as_plan(costs, one, subplans, budget) for one in best_order(costs, inputs, budget)))
