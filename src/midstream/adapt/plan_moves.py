"""The plans that differ from a plan in one place: what a search that goes from plan to plan can reach.

Dividing a neighbourhood anew moves a few inputs of a node at most. A node of many inputs that saves a stage
is reached only by a step that no neighbourhood holds: by dissolving a node into the one above.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import reduce
from itertools import combinations
from operator import and_
from typing import NamedTuple

from midstream.adapt.join_graph import JoinGraph
from midstream.adapt.stream_sets import ClassMask, StreamMask, StreamSets
from midstream.adapt.subplan_cost import Subplan


class PlanTree(NamedTuple):
    """A plan, or a part of one."""

    streams: StreamMask
    inputs: tuple[PlanTree, ...] = ()
    """In ascending order, so that equal plans are equal; none if it is a stream."""


def tree_of(top: StreamMask, subplans: Mapping[StreamMask, Subplan]) -> PlanTree:
    """The plan whose nodes these are."""
    inputs = subplans[top].inputs
    return _node(*(tree_of(one, subplans) for one in inputs)) if inputs else PlanTree(top)


def nodes_of(tree: PlanTree) -> Iterator[PlanTree]:
    """All nodes and streams, the inputs of a node before it."""
    for one in tree.inputs:
        yield from nodes_of(one)
    yield tree


def moves(tree: PlanTree, sets: StreamSets) -> Iterator[PlanTree]:
    """The plans that one move leads to, without cross products that the plan does not have."""
    for i, one in enumerate(tree.inputs):
        others = tree.inputs[:i] + tree.inputs[i + 1 :]
        yield from (_node(*others, changed) for changed in moves(one, sets))
        if one.inputs:
            yield _node(*others, *one.inputs)
            yield from _exchanges(one, others, sets)
    if len(tree.inputs) > 2:
        for pair in combinations(tree.inputs, 2):
            if _is_connected(pair, sets):
                yield _node(_node(*pair), *(one for one in tree.inputs if one not in pair))
    if len(tree.inputs) > 3:
        # Two that share a key get a stage of their own, which three may not need that share none.
        for three in combinations(tree.inputs, 3):
            if not _common_classes(three, sets) and _is_connected(three, sets):
                yield _node(_node(*three), *(one for one in tree.inputs if one not in three))


def _exchanges(inner: PlanTree, others: tuple[PlanTree, ...], sets: StreamSets) -> Iterator[PlanTree]:
    """A node takes an input of the one below, or gives it one, or both."""
    for j, given in enumerate(others):
        rest = others[:j] + others[j + 1 :]
        if rest and _is_connected((*inner.inputs, given), sets):
            yield _node(*rest, _node(*inner.inputs, given))
    for i, taken in enumerate(inner.inputs):
        kept = inner.inputs[:i] + inner.inputs[i + 1 :]
        if len(kept) > 1 and _is_connected(kept, sets):
            yield _node(*others, _node(*kept), taken)
        for j, given in enumerate(others):
            if _is_connected((*kept, given), sets):
                yield _node(*others[:j], *others[j + 1 :], _node(*kept, given), taken)


def _node(*inputs: PlanTree) -> PlanTree:
    return PlanTree(sum(one.streams for one in inputs), tuple(sorted(inputs)))


def _common_classes(inputs: tuple[PlanTree, ...], sets: StreamSets) -> ClassMask:
    return reduce(and_, (sets.classes[one.streams] for one in inputs))


def _is_connected(inputs: tuple[PlanTree, ...], sets: StreamSets) -> bool:
    return JoinGraph(sets, [one.streams for one in inputs]).is_connected
