"""The best plan of many streams, as far as looking at a limited number of sets of streams leads to it.

First, dynamic programming joins the streams in blocks: of all sets of a few parts, the one that costs least
becomes one part, until there is only one (iterative dynamic programming, Kossmann and Stocker, 2000). Then
each neighbourhood of the plan, a node with some of those below it, is divided anew in the best way, and the
plan is left for one that differs in one place (``plan_moves.py``), until neither improves anything. A second
plan is made as if there were one engine partition, where nodes that no key places cost no more than others:
if such a node saves stages, no single step from a plan without one is an improvement.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence

from midstream.adapt.exhaustive_search import ExhaustiveSearch
from midstream.adapt.input_order import order_by_growth
from midstream.adapt.join_graph import JoinGraph, PartMask
from midstream.adapt.plan_moves import PlanTree, moves, nodes_of, tree_of
from midstream.adapt.search_budget import COMBINATIONS_PER_EFFORT, SearchBudget
from midstream.adapt.stream_sets import StreamMask
from midstream.adapt.subplan_cost import Subplan, SubplanCosts

# Parts in a block.
_BLOCK_SIZE = 6
_NEIGHBOURHOOD = 6
# The first neighbours by which sets grow: as many as there is time for.
_NEIGHBOURS = (8, 5, 3, 2, 1)
# The combinations of inputs that may be looked at for each plan that is begun with.
_MOST_FOR_BLOCKS = 40_000
_MOST_FOR_IMPROVING = 30_000
_MOST_FOR_ONE_NODE = 150_000
# A plan must be cheaper by more than rounding errors to count as cheaper.
_ROUNDING = 1e-9

Subplans = dict[StreamMask, Subplan]
"""A plan: the subplan of each of its nodes, with the streams."""


def search_iteratively(costs: SubplanCosts) -> Subplans:
    """The best of a few plans that have been improved."""
    every = costs.sets.all_streams
    in_one = costs.in_one_partition()
    begun = [_in_blocks(costs), _improved(in_one, _in_blocks(in_one)), *_one_node(costs)]
    return min((_improved(costs, plan) for plan in begun), key=lambda plan: costs.with_stages(plan[every]))


def _one_node(costs: SubplanCosts) -> Iterator[Subplans]:
    """One node over all streams, if there is time for estimates of all joins that its probes make."""
    sets, streams = costs.sets, tuple(costs.sets.streams)
    # Each stream probes all others; of the joins on the way, a fourth of the effort of the last on average.
    if COMBINATIONS_PER_EFFORT * sets.effort(sets.all_streams) * len(streams) ** 2 // 4 <= _MOST_FOR_ONE_NODE:
        inputs = order_by_growth(costs, streams)
        yield {**{stream: Subplan() for stream in streams}, sets.all_streams: Subplan(inputs)}


def _in_blocks(costs: SubplanCosts) -> Subplans:
    """A plan of blocks of a few parts."""
    plan: Subplans = {stream: Subplan() for stream in costs.sets.streams}
    parts = list(costs.sets.streams)
    budget = SearchBudget(costs.sets, _MOST_FOR_BLOCKS)
    while len(parts) > 1:
        graph = JoinGraph(costs.sets, order_by_growth(costs, parts))
        # Each block leaves fewer parts, so that this many are to come.
        blocks = (len(parts) - 1) / (_BLOCK_SIZE - 1)
        divisions = ExhaustiveSearch(costs, graph, plan, budget)
        divisions.search(_some_connected_sets(costs, graph, budget.left / blocks))
        block = _best_block(costs, parts, divisions.best)
        plan |= dict(_inside(block, divisions.best, parts))
        parts = [part for part in parts if not part & block] + [block]
    return plan


def _some_connected_sets(costs: SubplanCosts, graph: JoinGraph, most_combinations: float) -> list[PartMask]:
    """Those sets that may be a block and whose joins can be estimated within a share of the budget."""
    for neighbours in _NEIGHBOURS:
        sets, combinations = [], 0
        for members in graph.connected_sets(_BLOCK_SIZE, neighbours):
            streams = graph.streams_of(members)
            if streams not in costs.sets.rate:
                combinations += COMBINATIONS_PER_EFFORT * costs.sets.effort(streams)
            sets.append(members)
            if combinations > most_combinations and neighbours > 1:
                break
        else:
            break
    return sets


def _best_block(costs: SubplanCosts, parts: Sequence[StreamMask], best: Subplans) -> StreamMask:
    """The set that is joined: of those with the most parts, the one that costs least, also as an input."""
    sizes = {members: sum(part & members > 0 for part in parts) for members in best}
    largest = max(sizes.values())
    return min(
        (members for members, size in sizes.items() if size == largest),
        key=lambda members: (costs.with_stages(best[members]) + costs.sets.index_cost[members], members),
    )


def _improved(costs: SubplanCosts, plan: Subplans) -> Subplans:
    """A plan that no division of a neighbourhood and no move makes cheaper, as far as the budget goes."""
    budget = SearchBudget(costs.sets, _MOST_FOR_IMPROVING)
    plan = _added_up(costs, plan)
    improves = True
    while improves:
        divided = _divided_anew(costs, plan, budget)
        plan = _moved(costs, divided, budget)
        improves = plan is not divided
    return plan


def _moved(costs: SubplanCosts, plan: Subplans, budget: SearchBudget) -> Subplans:
    """The plan after moves, as long as there is one that makes it cheaper."""
    tree: PlanTree | None = tree_of(costs.sets.all_streams, plan)
    known = {PlanTree(stream): Subplan() for stream in costs.sets.streams}
    while tree is not None:
        least, cheaper = costs.with_stages(plan[tree.streams]) * (1 - _ROUNDING), None
        for other in moves(tree, costs.sets):
            subplans = _subplans(costs, other, known, budget)
            if costs.with_stages(subplans[other.streams]) < least:
                plan, cheaper = subplans, other
            if cheaper is not None or budget.left <= 0:
                break
        tree = cheaper
    return plan


def _subplans(
    costs: SubplanCosts, tree: PlanTree, known: dict[PlanTree, Subplan], budget: SearchBudget
) -> Subplans:
    """The nodes of a plan, most of which other plans have had."""
    subplans: Subplans = {}
    for node in nodes_of(tree):
        if node not in known:
            budget.spend(len(node.inputs) ** 2)
            inputs = order_by_growth(costs, [one.streams for one in node.inputs])
            known[node] = costs.join(inputs, subplans)
        subplans[node.streams] = known[node]
    budget.spend(1)
    return subplans


def _divided_anew(costs: SubplanCosts, plan: Subplans, budget: SearchBudget) -> Subplans:
    """The plan with its neighbourhoods divided anew, as long as that makes it cheaper."""
    every = costs.sets.all_streams
    divided: set[frozenset[StreamMask]] = set()
    improves = True
    while improves:
        improves = False
        for top in sorted(plan, key=lambda members: (members.bit_count(), members)):
            if top not in plan or len(parts := _neighbourhood(top, plan)) <= 2 or parts in divided:
                continue
            divided.add(parts)
            graph = JoinGraph(costs.sets, order_by_growth(costs, sorted(parts)))
            divisions = ExhaustiveSearch(costs, graph, plan, budget)
            if not divisions.search(graph.connected_sets(len(parts), len(parts))):
                return plan
            changed = _added_up(costs, plan | dict(_inside(top, divisions.best, parts)))
            if costs.with_stages(changed[every]) < costs.with_stages(plan[every]) * (1 - _ROUNDING):
                plan, improves = changed, True
    return plan


def _neighbourhood(top: StreamMask, plan: Subplans) -> frozenset[StreamMask]:
    """The inputs of a node, and instead of some, as long as they are few, the inputs of these."""
    parts = {*plan[top].inputs}
    while True:
        inner = [
            part
            for part in parts
            if plan[part].inputs and len(parts) - 1 + len(plan[part].inputs) <= _NEIGHBOURHOOD
        ]
        if not inner:
            return frozenset(parts) if len(parts) <= _NEIGHBOURHOOD else frozenset()
        costliest = max(inner, key=lambda part: (plan[part].cost, part))
        parts = parts - {costliest} | {*plan[costliest].inputs}


def _added_up(costs: SubplanCosts, plan: Subplans) -> Subplans:
    """The nodes of a plan, with what each costs now that some of them are others."""
    nodes = dict(_inside(costs.sets.all_streams, plan, ()))
    added: Subplans = {}
    for members in sorted(nodes, key=lambda members: (members.bit_count(), members)):
        subplan = nodes[members]
        added[members] = costs.join(subplan.inputs, added) if subplan.inputs else subplan
    return added


def _inside(
    top: StreamMask, best: Subplans, parts: Container[StreamMask]
) -> Iterator[tuple[StreamMask, Subplan]]:
    """The nodes of a plan from one downwards, without parts that stay as they are."""
    yield top, best[top]
    for part in best[top].inputs:
        if part not in parts:
            yield from _inside(part, best, parts)
