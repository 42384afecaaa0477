"""The hand-over table: which results the old plan still makes, so that nothing is lost and nothing twice.

A state that both plans have is a *cut*: its rows are the same whoever makes them. So a migration falls
apart into **tasks**, one for each cut below which the plans differ, and one for the results. An **entry** of
a task's table says which rows a state of the new plan lacks. Results of the task within some entry are
the old plan's to make; all others the new plan makes, with no filter at all: what it lacks it cannot make.

A task is over when its table is empty. An entry goes when its rows are too old to be part of a result, or
when its state has been completed: then what lacks is only what the state's parent missed meanwhile, and
the entry moves there. Rows of siblings that arrived *until then* are in it, not just those from before the
migration began: their combinations with the late-coming rows exist nowhere yet.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from midstream.plan.layout import Bounds, Layout, Node, StateId, streams_of
from midstream.state.migration import HandoverEntry
from midstream.state.purge import Purge

Tables = dict[StateId, tuple[HandoverEntry, ...]]


@dataclass(frozen=True)
class ReplacedSubplan:
    """What two plans do differently between a state that both have and the next such states below."""

    root: StateId
    old: tuple[Node, ...]
    new: tuple[Node, ...]


def replaced_subplans(old: Layout, new: Layout, shared: frozenset[StateId]) -> list[ReplacedSubplan]:
    """The tasks of a migration, lower ones first."""
    cuts = sorted(
        {s for s in shared if len(streams_of(s)) > 1} | {new.root}, key=lambda s: len(streams_of(s))
    )
    found = []
    for root in cuts:
        task = ReplacedSubplan(root, _inside(old, root, cuts), _inside(new, root, cuts))
        if {_shape(node) for node in task.old} != {_shape(node) for node in task.new}:
            found.append(task)
    return found


def _inside(layout: Layout, root: StateId, cuts: Iterable[StateId]) -> tuple[Node, ...]:
    whole = set(streams_of(root))
    lower = [set(streams_of(cut)) for cut in cuts if set(streams_of(cut)) < whole]
    nodes = (node for fragment in layout.fragments for node in fragment.nodes)
    return tuple(
        node
        for node in nodes
        if set(streams_of(node.id)) <= whole and not any(set(streams_of(node.id)) <= cut for cut in lower)
    )


def _shape(node: Node) -> tuple[StateId, frozenset[StateId]]:
    return node.id, frozenset(node.inputs)


def first_tables(
    tasks: Sequence[ReplacedSubplan], empty: frozenset[StateId], copies: Mapping[StateId, StateId], epoch: int
) -> Tables:
    """The tables at the start: what the lowest empty states lack is all that arrived before ``epoch``.

    ``copies`` are states that the new plan has an empty copy of.
    """
    tables: Tables = {}
    for task in tasks:
        inputs_of = {node.id: [copies.get(s, s) for s in node.inputs] for node in task.new}
        states = dict.fromkeys(s for inputs in inputs_of.values() for s in inputs if s in empty)
        lowest = [s for s in states if not empty.intersection(inputs_of.get(s, ()))]
        tables[task.root] = tuple(HandoverEntry(s, dict.fromkeys(streams_of(s), epoch)) for s in lowest)
    return tables


def complete(
    tables: Mapping[StateId, tuple[HandoverEntry, ...]], new: Layout, state: StateId, epoch: int
) -> Tables:
    """The tables once ``state`` has all its rows, from ``epoch`` on."""
    nodes = (node for fragment in new.fragments for node in fragment.nodes)
    parent = next(node.id for node in nodes if state in node.inputs)
    changed: Tables = {}
    for root, entries in tables.items():
        kept = []
        for entry in entries:
            if entry.scope != state:
                kept.append(entry)
            elif parent != root:
                missed = {s: entry.bounds.get(s, epoch) for s in streams_of(parent)}
                kept.append(HandoverEntry(parent, missed))
        changed[root] = tuple(kept)
    return changed


def expire(
    tables: Mapping[StateId, tuple[HandoverEntry, ...]],
    purge: Purge,
    marks: Mapping[int, Mapping[str, int | None]],
) -> Tables:
    """The tables without the entries of which no row can be part of a result any more."""
    return {
        root: tuple(entry for entry in entries if not _is_dead(entry, purge, marks))
        for root, entries in tables.items()
    }


def _is_dead(entry: HandoverEntry, purge: Purge, marks: Mapping[int, Mapping[str, int | None]]) -> bool:
    latest = {stream: marks[epoch][stream] for stream, epoch in entry.bounds.items()}
    times = [time for time in latest.values() if time is not None]
    return len(times) < len(latest) or purge.is_dead(tuple(latest), times)


def bounds_of(entries: Iterable[HandoverEntry]) -> tuple[Bounds, ...]:
    """Entries as the engine takes them."""
    return tuple(tuple(sorted(entry.bounds.items())) for entry in entries)
