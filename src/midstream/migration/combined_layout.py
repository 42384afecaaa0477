"""Two plans as one layout: what both have runs once, the old plan's own nodes make only what is theirs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from midstream.migration.fusion import Pair, fused_fragments
from midstream.migration.handover import ReplacedSubplan, Tables, bounds_of
from midstream.plan.layout import (
    Fragment,
    Layout,
    Node,
    Restriction,
    StateId,
    restarted,
    streams_of,
)


def copies_of(
    tasks: Iterable[ReplacedSubplan], shared: frozenset[StateId], number: int
) -> dict[StateId, StateId]:
    """States that both plans have: a new plan that begins without any rows has an empty copy of each."""
    return {s: restarted(s, number) for t in tasks for n in t.new for s in n.inputs if s in shared}


def merge(
    old: Layout,
    new: Layout,
    tasks: Iterable[ReplacedSubplan],
    tables: Tables,
    *,
    early: bool,
    copies: Mapping[StateId, StateId],
) -> Layout:
    """The layout of both plans. With ``early`` the old one drops at once what is not its to make."""
    running = [task for task in tasks if tables[task.root]]
    theirs = {node: task for task in running for node in task.old}
    mine = {node for task in running for node in task.new}
    kept: set[StateId] = set()
    fragments: list[Fragment] = []
    for place in sorted(fused_fragments(old, new, _pairs(old, new)), key=lambda place: place.stage):
        nodes = [
            _restricted(node, theirs[node], tables, early=early)
            for fragment in place.old
            for node in fragment.nodes
            if node in theirs
        ]
        nodes += [
            replace(node.renamed(copies), id=node.id, side="new") if node in mine else node
            for fragment in place.new
            for node in fragment.nodes
        ]
        if not nodes:
            continue
        # A node has more streams than any of its inputs, so those that it needs come first.
        nodes.sort(key=lambda node: len(streams_of(node.id)))
        searched = {state for node in nodes for state in node.inputs}
        copied = tuple((original, copy) for original, copy in copies.items() if copy in searched)
        entering = searched | {original for original, _ in copied}
        # What enters twice is kept where a node first searches it; elsewhere there is only a copy of it.
        inputs = {
            one.id: replace(one, owned=one.id in searched - kept)
            for fragment in (*place.old, *place.new)
            for one in fragment.inputs
            if one.id in entering
        }
        kept |= searched
        key = (*place.old, *place.new)[0].key
        fragments.append(
            Fragment(len(fragments), key, place.stage, tuple(inputs.values()), tuple(nodes), copied)
        )
    stages = sorted({fragment.stage for fragment in fragments})
    return Layout(new.plan, tuple(replace(f, stage=stages.index(f.stage)) for f in fragments))


def _pairs(old: Layout, new: Layout) -> Iterable[Pair]:
    """Fragments of the two plans that keep the same joined rows."""
    for theirs in old.fragments:
        for mine in new.fragments:
            common = theirs.arrangements.keys() & mine.arrangements.keys()
            if any(len(streams_of(state)) > 1 for state in common):
                yield theirs.id, mine.id


def _restricted(node: Node, task: ReplacedSubplan, tables: Tables, *, early: bool) -> Node:
    is_root = node.id == task.root
    bounds = bounds_of(tables[task.root])
    restriction = Restriction(bounds, early) if early or is_root else None
    return replace(node, restriction=restriction, side="old")
