"""Combining two plans in one layout: common nodes run once, the old plan's other nodes are restricted."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from midstream.migration.fusion import FusedFragment, Pair, fused_fragments
from midstream.migration.handover_tables import ReplacedSubplan, bounds_of
from midstream.plan.handover import Handover, InputOf, PlanSide, Restriction, retention_bounds
from midstream.plan.layout import Fragment, Layout, Node
from midstream.plan.state_id import StateId
from midstream.state.migration import HandoverTables


@dataclass(frozen=True)
class CombinedLayout:
    """The layout of both plans, and how they divide the rows."""

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
    """The layout of both plans. If the old one ``prunes``, it drops rows early that it need not produce."""
    unfinished = [subplan for subplan in subplans if tables[subplan.root]]
    subplan_of = {node: subplan for subplan in unfinished for node in subplan.old}
    replacements = {node for subplan in unfinished for node in subplan.new}
    sides: dict[Node, PlanSide] = {}
    restrictions: dict[Node, Restriction] = {}
    fragments: list[Fragment] = []
    for fused in sorted(
        fused_fragments(old, new, _shared_pairs(old, new)), key=lambda fragment: fragment.stage
    ):
        nodes: list[Node] = []
        for node in (n for f in fused.old for n in f.nodes if n in subplan_of):
            nodes.append(node)
            sides[node] = "old"
            root = subplan_of[node].root
            if prunes or node.id == root:
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
    handover = Handover(
        sides=sides,
        restrictions=restrictions,
        copies=copies,
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


def _shared_pairs(old: Layout, new: Layout) -> Iterable[Pair]:
    """Fragments of the two plans that store the same combined rows."""
    for old_fragment in old.fragments:
        for new_fragment in new.fragments:
            common = old_fragment.arrangements.keys() & new_fragment.arrangements.keys()
            if any(not state.is_base for state in common):
                yield old_fragment.id, new_fragment.id


def _copied(layout: Layout, copies: Mapping[StateId, StateId]) -> list[StateId]:
    """The states that have a copy which is searched."""
    searched = {state for node in layout.nodes for state in node.inputs}
    return [original for original, copy in copies.items() if copy in searched]


def _not_stored(layout: Layout) -> frozenset[InputOf]:
    """Inputs that their fragment does not store: a state is stored by the first fragment that searches it."""
    stored: set[StateId] = set()
    stored_elsewhere: set[InputOf] = set()
    for fragment in layout.fragments:
        searched = fragment.arrangements.keys()
        stored_elsewhere |= {
            (fragment.id, state)
            for state in fragment.inputs_by_id
            if state in stored or state not in searched
        }
        stored |= searched
    return frozenset(stored_elsewhere)


def _not_counted(layout: Layout) -> frozenset[InputOf]:
    """Inputs whose rows are not counted: a stream may have several, and is counted at one that is stored."""
    stored_elsewhere = _not_stored(layout)
    counting = {state.streams: state for state in reversed(layout.fragment_of_input) if state.is_base}
    return frozenset(
        (fragment.id, state)
        for fragment in layout.fragments
        for state in fragment.inputs_by_id
        if (fragment.id, state) in stored_elsewhere or counting.get(state.streams) != state
    )
