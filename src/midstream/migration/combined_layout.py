"""Combining two plans in one layout: common nodes run once, the old plan's other nodes are restricted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from midstream.migration.fusion import FusedFragment, fused_fragments
from midstream.migration.handover_tables import bounds_of
from midstream.migration.plan_pair import PlanPair
from midstream.plan.handover import (
    FragmentInputKey,
    Handover,
    PlanSide,
    Restriction,
    relevance_bounds,
    retention_bounds,
)
from midstream.plan.layout import Fragment, Layout, Node
from midstream.plan.state_id import StateId
from midstream.state.migration import HandoverTables


@dataclass(frozen=True)
class CombinedLayout:
    """The layout of both plans, and how they divide the rows."""

    layout: Layout
    handover: Handover


def combine(plans: PlanPair, tables: HandoverTables, *, prunes: bool) -> CombinedLayout:
    """The layout of both plans. If the old one ``prunes``, it drops rows early that it need not produce."""
    old, new, copies = plans.old, plans.new, plans.copies
    unfinished = [subplan for subplan in plans.subplans if tables[subplan.root]]
    subplan_of = {node: subplan for subplan in unfinished for node in subplan.old}
    replacements = {node for subplan in unfinished for node in subplan.new}
    sides: dict[Node, PlanSide] = {}
    restrictions: dict[Node, Restriction] = {}
    fragments: list[Fragment] = []
    for fused in sorted(fused_fragments(old, new, plans.constraints), key=lambda fragment: fragment.stage):
        nodes: list[Node] = []
        for node in (n for f in fused.old for n in f.nodes if n in subplan_of):
            nodes.append(node)
            sides[node] = "old"
            root = subplan_of[node].root
            if prunes or node.id.streams == root.streams:
                restrictions[node] = Restriction(bounds_of(tables[root]), prunes)
        for node in (n for f in fused.new for n in f.nodes):
            # An isolated plan searches its own copies, but the ids of its nodes stay the same.
            new_node = replace(node.renamed(copies), id=node.id) if node in replacements else node
            nodes.append(new_node)
            if node in replacements:
                sides[new_node] = "new"
        if nodes:
            # A node has more streams than any of its inputs, so its inputs come first.
            nodes.sort(key=lambda node: len(node.id.streams))
            fragments.append(_fragment(len(fragments), fused, nodes, copies))
    stages = sorted({fragment.stage for fragment in fragments})
    layout = Layout(new.plan, tuple(replace(f, stage=stages.index(f.stage)) for f in fragments))
    destinations = _destinations(plans, layout)
    handover = Handover(
        sides=sides,
        restrictions=restrictions,
        copies=copies,
        destinations=destinations,
        relevance=relevance_bounds(layout.nodes, restrictions, destinations),
        retention=retention_bounds(layout.nodes, restrictions, _copied(layout, copies)),
        stored_elsewhere=_not_stored(layout),
        counted_elsewhere=_not_counted(layout),
    )
    return CombinedLayout(layout, handover)


def _fragment(
    number: int, fused: FusedFragment, nodes: list[Node], copies: Mapping[StateId, StateId]
) -> Fragment:
    searched = {state for node in nodes for state in node.inputs}
    entering = searched | {original for original, copy in copies.items() if copy in searched}
    parts = (*fused.old, *fused.new)
    inputs = {input_.id: input_ for part in parts for input_ in part.inputs if input_.id in entering}
    return Fragment(number, parts[0].key, fused.stage, tuple(inputs.values()), tuple(nodes))


def _destinations(plans: PlanPair, layout: Layout) -> dict[StateId, tuple[StateId, ...]]:
    """The states that get the rows of each border which the plans store in different locations."""
    destinations: dict[StateId, tuple[StateId, ...]] = {}
    for locations in plans.sources_of(plans.moved_borders).items():
        searched = tuple(sorted(state for state in locations if state in layout.states))
        destinations |= dict.fromkeys(locations, searched)
    return destinations


def _copied(layout: Layout, copies: Mapping[StateId, StateId]) -> list[StateId]:
    """The states that have a copy which is searched."""
    searched = {state for node in layout.nodes for state in node.inputs}
    return [original for original, copy in copies.items() if copy in searched]


def _not_stored(layout: Layout) -> frozenset[FragmentInputKey]:
    """Inputs that their fragment does not store: a state is stored by the first fragment that searches it."""
    stored: set[StateId] = set()
    stored_elsewhere: set[FragmentInputKey] = set()
    for fragment in layout.fragments:
        searched = fragment.arrangements.keys()
        stored_elsewhere |= {
            (fragment.id, state)
            for state in fragment.inputs_by_id
            if state in stored or state not in searched
        }
        stored |= searched
    return frozenset(stored_elsewhere)


def _not_counted(layout: Layout) -> frozenset[FragmentInputKey]:
    """Inputs whose rows are not counted: a stream may have several, and is counted at one that is stored."""
    stored_elsewhere = _not_stored(layout)
    counting = {state.streams: state for state in reversed(layout.fragment_of_input) if state.is_base}
    return frozenset(
        (fragment.id, state)
        for fragment in layout.fragments
        for state in fragment.inputs_by_id
        if (fragment.id, state) in stored_elsewhere or counting.get(state.streams) != state
    )
