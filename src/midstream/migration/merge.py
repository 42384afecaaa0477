"""Two plans as one layout: what both have runs once, the old plan's own nodes make only what is theirs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from midstream.migration.table import Tables, Task, bounds_of
from midstream.plan.layout import (
    Fragment,
    FragmentInput,
    Key,
    Layout,
    Node,
    Restriction,
    StateId,
    begun_anew,
    streams_of,
)


@dataclass
class _Place:
    """Nodes of both plans that run in the same partitions at the same time, and what enters there."""

    inputs: dict[StateId, FragmentInput] = field(default_factory=dict)
    nodes: list[Node] = field(default_factory=list)
    copies: list[tuple[StateId, StateId]] = field(default_factory=list)


def copies_of(tasks: Iterable[Task], shared: frozenset[StateId], number: int) -> dict[StateId, StateId]:
    """Parallel track shares no rows: shared states that the new plan has an empty copy of."""
    return {s: begun_anew(s, number) for t in tasks for n in t.new for s in n.inputs if s in shared}


def merge(
    old: Layout,
    new: Layout,
    tasks: Iterable[Task],
    tables: Tables,
    *,
    early: bool,
    copies: Mapping[StateId, StateId],
) -> Layout:
    """The layout of both plans. With ``early`` the old one drops at once what is not its to make."""
    running = [task for task in tasks if tables[task.root]]
    theirs = {node: task for task in running for node in task.old}
    mine = {node for task in running for node in task.new}
    places: dict[tuple[int, Key], _Place] = {}
    for fragment in old.fragments:
        nodes = [_restricted(n, theirs[n], tables, early=early) for n in fragment.nodes if n in theirs]
        _add(places, fragment, nodes, {})
    for fragment in new.fragments:
        nodes = [replace(n.renamed(copies), id=n.id, side="new") if n in mine else n for n in fragment.nodes]
        _add(places, fragment, nodes, copies)
    return Layout(new.plan, tuple(_fragments(places)))


def _restricted(node: Node, task: Task, tables: Tables, *, early: bool) -> Node:
    is_root = node.id == task.root
    bounds = bounds_of(tables[task.root])
    restriction = Restriction(bounds, early) if early or is_root else None
    return replace(node, restriction=restriction, side="old")


def _add(
    places: dict[tuple[int, Key], _Place],
    fragment: Fragment,
    nodes: list[Node],
    copies: Mapping[StateId, StateId],
) -> None:
    used = {state for node in nodes for state in node.inputs}
    copied = [(original, copy) for original, copy in copies.items() if copy in used]
    used |= {original for original, _ in copied}
    if not nodes:
        return
    place = places.setdefault((fragment.stage, fragment.key), _Place())
    place.inputs |= {one.id: one for one in fragment.inputs if one.id in used}
    place.nodes += nodes
    place.copies += copied


def _fragments(places: Mapping[tuple[int, Key], _Place]) -> Iterable[Fragment]:
    stages = sorted({stage for stage, _ in places})
    kept: set[StateId] = set()
    for number, ((stage, key), place) in enumerate(sorted(places.items(), key=lambda item: item[0])):
        # What enters twice is kept where a node searches it; elsewhere there is only a copy of it.
        searched = {state for node in place.nodes for state in node.inputs} - kept
        inputs = tuple(replace(one, owned=one.id in searched) for one in place.inputs.values())
        kept |= searched
        # A node has more streams than any of its inputs, so those that it needs come first.
        nodes = sorted(place.nodes, key=lambda node: len(streams_of(node.id)))
        yield Fragment(number, key, stages.index(stage), inputs, tuple(nodes), tuple(place.copies))
