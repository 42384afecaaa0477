"""Hand-over tables: which results the old plan still produces, so that none is lost or repeated.

A state that both plans have is a *border* (``migration/borders.py``): its rows are the same whichever plan
produces them. So a migration consists of **replaced sub-plans**, one for each border below which the plans
differ, and one for the results. An **entry** of a sub-plan's table says which rows a state of the new plan
lacks. The old plan produces the results of the sub-plan within some entry. The new plan produces all others,
and needs no filter for that: it cannot produce results from rows that it lacks.

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


def replaced_subplans(
    old: Layout, new: Layout, borders: Iterable[StateId], same: Mapping[StateId, StateId]
) -> list[ReplacedSubplan]:
    """The sub-plans in which two plans differ, lower ones first.

    ``borders`` are by their ids in the new plan. ``same`` are states of the new plan that start with all rows
    of one of the old plan.
    """
    roots = sorted({*borders, new.root}, key=lambda state: len(state.streams))
    subplans = (
        ReplacedSubplan(root, nodes_between(old, root, roots), nodes_between(new, root, roots))
        for root in roots
    )
    return [subplan for subplan in subplans if is_replaced(subplan.old, subplan.new, same)]


def nodes_between(layout: Layout, root: StateId, borders: Iterable[StateId]) -> tuple[Node, ...]:
    """The nodes between a border and the next borders below."""
    root_streams = set(root.streams)
    lower_borders = [set(border.streams) for border in borders if set(border.streams) < root_streams]
    return tuple(
        node
        for node in layout.nodes
        if set(node.id.streams) <= root_streams
        and not any(set(node.id.streams) <= border for border in lower_borders)
    )


def is_replaced(old: Iterable[Node], new: Iterable[Node], same: Mapping[StateId, StateId]) -> bool:
    """Whether the nodes of a sub-plan differ, or search states of which the new plan lacks rows."""
    return {_shape(node, {}) for node in old} != {_shape(node, same) for node in new}


def _shape(node: Node, same: Mapping[StateId, StateId]) -> tuple[tuple[str, ...], frozenset[StateId]]:
    return node.id.streams, frozenset(same.get(state, state) for state in node.inputs)


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
    times = _latest_of(entry, latest_times)
    last_epoch = max(entry.bounds.values()) - 1
    return times is None or expiry.has_expired(tuple(entry.bounds), times, last_epoch)


def time_until_expired(
    entry: HandoverEntry, expiry: Expiry, latest_times: Mapping[int, Mapping[str, int | None]]
) -> int | None:
    """The event time until the rows of an entry are all dead; None if they never are."""
    times = _latest_of(entry, latest_times)
    return 0 if times is None else expiry.time_left(tuple(entry.bounds), times)


def _latest_of(
    entry: HandoverEntry, latest_times: Mapping[int, Mapping[str, int | None]]
) -> list[int] | None:
    """The largest event times of the rows of an entry; None if it has none, for lack of rows of a stream."""
    latest = [latest_times[epoch][stream] for stream, epoch in entry.bounds.items()]
    times = [time for time in latest if time is not None]
    return times if len(times) == len(latest) else None


def bounds_of(entries: Iterable[HandoverEntry]) -> tuple[EpochBounds, ...]:
    """The bounds of entries, as the engine filters by them."""
    return tuple(tuple(sorted(entry.bounds.items())) for entry in entries)
