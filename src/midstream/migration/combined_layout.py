"""Two plans as one layout: what both have runs once; the old plan's own nodes produce only their share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from midstream.migration.fusion import FusedFragment, Pair, fused_fragments
from midstream.migration.handover import ReplacedSubplan, bounds_of
from midstream.plan.handover import Handover, InputOf, Restriction, Side, retention_bounds
from midstream.plan.layout import Fragment, Layout, Node
from midstream.plan.state_id import StateId
from midstream.state.migration import HandoverTables


@dataclass(frozen=True)
class CombinedLayout:
    """The layout of both plans, and how they share the rows."""

    layout: Layout
    handover: Handover


def copies_of(
    subplans: Iterable[ReplacedSubplan], shared: frozenset[StateId], number: int
) -> dict[StateId, StateId]:
    """For states that both plans have, the empty copies that an isolated new plan starts with."""
    nodes = (node for subplan in subplans for node in subplan.new)
    return {s: s.started_by(number) for node in nodes for s in node.inputs if s in shared}


def combine(
    old: Layout,
    new: Layout,
    subplans: Iterable[ReplacedSubplan],
    tables: HandoverTables,
    *,
    prunes: bool,
    copies: Mapping[StateId, StateId],
) -> CombinedLayout:
    """The layout of both plans. If the old one ``prunes``, it drops at once what it need not produce."""
    running = [subplan for subplan in subplans if tables[subplan.root]]
    subplan_of = {node: subplan for subplan in running for node in subplan.old}
    replacing = {node for subplan in running for node in subplan.new}
    sides: dict[Node, Side] = {}
    restrictions: dict[Node, Restriction] = {}
    fragments: list[Fragment] = []
    for fused in sorted(fused_fragments(old, new, _shared_pairs(old, new)), key=lambda one: one.stage):
        nodes: list[Node] = []
        for node in (n for f in fused.old for n in f.nodes if n in subplan_of):
            nodes.append(node)
            sides[node] = "old"
            root = subplan_of[node].root
            if prunes or node.id == root:
                restrictions[node] = Restriction(bounds_of(tables[root]), prunes)
        for node in (n for f in fused.new for n in f.nodes):
            # An isolated plan searches its own copies, but what it produces has the usual ids.
            ours = replace(node.renamed(copies), id=node.id) if node in replacing else node
            nodes.append(ours)
            if node in replacing:
                sides[ours] = "new"
        if nodes:
            # A node has more streams than any of its inputs, so those that it needs come first.
            nodes.sort(key=lambda node: len(node.id.streams))
            fragments.append(_fragment(len(fragments), fused, nodes, copies))
    stages = sorted({fragment.stage for fragment in fragments})
    layout = Layout(new.plan, tuple(replace(f, stage=stages.index(f.stage)) for f in fragments))
    handover = Handover(
        sides=sides,
        restrictions=restrictions,
        copies=copies,
        retention=retention_bounds(layout.nodes, restrictions, _copied(layout, copies)),
        not_stored=_not_stored(layout),
        not_counted=_not_counted(layout),
    )
    return CombinedLayout(layout, handover)


def _fragment(
    number: int, fused: FusedFragment, nodes: list[Node], copies: Mapping[StateId, StateId]
) -> Fragment:
    searched = {state for node in nodes for state in node.inputs}
    entering = searched | {original for original, copy in copies.items() if copy in searched}
    both = (*fused.old, *fused.new)
    inputs = {one.id: one for fragment in both for one in fragment.inputs if one.id in entering}
    return Fragment(number, both[0].key, fused.stage, tuple(inputs.values()), tuple(nodes))


def _shared_pairs(old: Layout, new: Layout) -> Iterable[Pair]:
    """Fragments of the two plans that store the same joined rows."""
    for ours in old.fragments:
        for theirs in new.fragments:
            common = ours.arrangements.keys() & theirs.arrangements.keys()
            if any(not state.is_base for state in common):
                yield ours.id, theirs.id


def _copied(layout: Layout, copies: Mapping[StateId, StateId]) -> list[StateId]:
    searched = {state for node in layout.nodes for state in node.inputs}
    return [original for original, copy in copies.items() if copy in searched]


def _not_stored(layout: Layout) -> frozenset[InputOf]:
    """What enters several fragments is stored by the first in which a node searches it."""
    stored: set[StateId] = set()
    elsewhere: set[InputOf] = set()
    for fragment in layout.fragments:
        searched = fragment.arrangements.keys()
        elsewhere |= {
            (fragment.id, one.id) for one in fragment.inputs if one.id in stored or one.id not in searched
        }
        stored |= searched
    return frozenset(elsewhere)


def _not_counted(layout: Layout) -> frozenset[InputOf]:
    """The rows of a stream that enters several times, under one id or two, are counted where it is stored."""
    not_stored = _not_stored(layout)
    counting = {state.streams: state for state in reversed(layout.fragment_of_input) if state.is_base}
    return frozenset(
        (fragment.id, one.id)
        for fragment in layout.fragments
        for one in fragment.inputs
        if (fragment.id, one.id) in not_stored or counting.get(one.streams) != one.id
    )
