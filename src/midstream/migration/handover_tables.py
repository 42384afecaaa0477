"""Hand-over tables: which results the old plan still produces, so that none is lost or repeated.

A state that both plans have is a *cut*: its rows are the same whichever plan produces them. So a migration
consists of **replaced sub-plans**, one for each cut below which the plans differ, and one for the results. An
**entry** of a sub-plan's table says which rows a state of the new plan lacks. The old plan produces the
results of the sub-plan within some entry. The new plan produces all others, and needs no filter for that: it
cannot produce results from rows that it lacks.

A sub-plan has been replaced when its table is empty. An entry is removed when its rows are too old to be part
of a result, or when its state is complete: then the state's parent lacks the combinations with the rebuilt
rows, and the entry moves to the parent. It covers rows of siblings that arrived *until then*, not just those
from before the migration.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from midstream.plan.handover import EpochBounds
from midstream.plan.layout import Layout, Node
from midstream.plan.state_id import StateId
from midstream.state.expiry import Expiry
from midstream.state.migration import HandoverEntry, HandoverTables


@dataclass(frozen=True)
class ReplacedSubplan:
    """The nodes in which two plans differ, between a state that both have and the next such states below."""

    root: StateId
    old: tuple[Node, ...]
    new: tuple[Node, ...]


def replaced_subplans(old: Layout, new: Layout, shared: frozenset[StateId]) -> list[ReplacedSubplan]:
    """The sub-plans in which two plans differ, lower ones first."""
    cuts = sorted({s for s in shared if not s.is_base} | {new.root}, key=lambda state: len(state.streams))
    subplans = []
    for root in cuts:
        subplan = ReplacedSubplan(root, _nodes_between(old, root, cuts), _nodes_between(new, root, cuts))
        if {_shape(node) for node in subplan.old} != {_shape(node) for node in subplan.new}:
            subplans.append(subplan)
    return subplans


def _nodes_between(layout: Layout, root: StateId, cuts: Iterable[StateId]) -> tuple[Node, ...]:
    """The nodes between a cut and the next cuts below."""
    root_streams = set(root.streams)
    lower_cuts = [set(cut.streams) for cut in cuts if set(cut.streams) < root_streams]
    return tuple(
        node
        for node in layout.nodes
        if set(node.id.streams) <= root_streams and not any(set(node.id.streams) <= cut for cut in lower_cuts)
    )


def _shape(node: Node) -> tuple[StateId, frozenset[StateId]]:
    return node.id, frozenset(node.inputs)


def first_tables(
    subplans: Sequence[ReplacedSubplan],
    empty: frozenset[StateId],
    copies: Mapping[StateId, StateId],
    epoch: int,
) -> HandoverTables:
    """The tables at the start: the lowest empty states lack all rows that arrived before ``epoch``.

    ``copies`` are the empty copies with which an isolated plan starts.
    """
    tables: HandoverTables = {}
    for subplan in subplans:
        inputs_of = {node.id: [copies.get(s, s) for s in node.inputs] for node in subplan.new}
        states = dict.fromkeys(s for inputs in inputs_of.values() for s in inputs if s in empty)
        lowest = [s for s in states if not empty.intersection(inputs_of.get(s, ()))]
        tables[subplan.root] = tuple(HandoverEntry(s, dict.fromkeys(s.streams, epoch)) for s in lowest)
    return tables


Tables = Mapping[StateId, tuple[HandoverEntry, ...]]


def complete(tables: Tables, new: Layout, state: StateId, epoch: int) -> HandoverTables:
    """The tables from ``epoch`` on, in which ``state`` is complete."""
    parent = next(node.id for node in new.nodes if state in node.inputs)
    new_tables: HandoverTables = {}
    for root, entries in tables.items():
        new_entries = []
        for entry in entries:
            if entry.state != state:
                new_entries.append(entry)
            elif parent != root:
                bounds = {s: entry.bounds.get(s, epoch) for s in parent.streams}
                new_entries.append(HandoverEntry(parent, bounds))
        new_tables[root] = tuple(new_entries)
    return new_tables


def expire(
    tables: Tables, expiry: Expiry, latest_times: Mapping[int, Mapping[str, int | None]]
) -> HandoverTables:
    """The tables without the entries whose rows are all dead."""
    return {
        root: tuple(entry for entry in entries if not _has_expired(entry, expiry, latest_times))
        for root, entries in tables.items()
    }


def _has_expired(
    entry: HandoverEntry, expiry: Expiry, latest_times: Mapping[int, Mapping[str, int | None]]
) -> bool:
    latest = {stream: latest_times[epoch][stream] for stream, epoch in entry.bounds.items()}
    times = [time for time in latest.values() if time is not None]
    last_epoch = max(entry.bounds.values()) - 1
    return len(times) < len(latest) or expiry.has_expired(tuple(latest), times, last_epoch)


def bounds_of(entries: Iterable[HandoverEntry]) -> tuple[EpochBounds, ...]:
    """The bounds of entries, as the engine filters by them."""
    return tuple(tuple(sorted(entry.bounds.items())) for entry in entries)
