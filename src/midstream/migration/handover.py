"""The hand-over table: which results the old plan still produces, so that none is lost or repeated.

A state that both plans have is a *cut*: its rows are the same whichever plan produces them. So a migration
falls apart into **replaced sub-plans**, one for each cut below which the plans differ, and one for the
results. An **entry** of a sub-plan's table says which rows a state of the new plan lacks. Results of the
sub-plan within some entry are the old plan's to produce; all others the new plan produces, with no filter at
all: what it lacks it cannot produce.

A sub-plan has been replaced when its table is empty. An entry goes when its rows are too old to be part of a
result, or when its state has been completed: then only the state's parent lacks what it missed meanwhile, and
the entry moves there. It covers rows of siblings that arrived *until then*, not just those from before the
migration began: their combinations with the rebuilt rows exist nowhere yet.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from midstream.plan.handover import EpochBounds
from midstream.plan.layout import Layout, Node
from midstream.plan.state_id import StateId
from midstream.state.migration import HandoverEntry, HandoverTables
from midstream.state.purge import Purge


@dataclass(frozen=True)
class ReplacedSubplan:
    """What two plans do differently between a state that both have and the next such states below."""

    root: StateId
    old: tuple[Node, ...]
    new: tuple[Node, ...]


def replaced_subplans(old: Layout, new: Layout, shared: frozenset[StateId]) -> list[ReplacedSubplan]:
    """The sub-plans in which two plans differ, lower ones first."""
    cuts = sorted({s for s in shared if not s.is_base} | {new.root}, key=lambda state: len(state.streams))
    subplans = []
    for root in cuts:
        subplan = ReplacedSubplan(root, _inside(old, root, cuts), _inside(new, root, cuts))
        if {_shape(node) for node in subplan.old} != {_shape(node) for node in subplan.new}:
            subplans.append(subplan)
    return subplans


def _inside(layout: Layout, root: StateId, cuts: Iterable[StateId]) -> tuple[Node, ...]:
    """The nodes between a cut and the next cuts below."""
    above = set(root.streams)
    lower = [set(cut.streams) for cut in cuts if set(cut.streams) < above]
    return tuple(
        node
        for node in layout.nodes
        if set(node.id.streams) <= above and not any(set(node.id.streams) <= cut for cut in lower)
    )


def _shape(node: Node) -> tuple[StateId, frozenset[StateId]]:
    return node.id, frozenset(node.inputs)


def first_tables(
    subplans: Sequence[ReplacedSubplan],
    empty: frozenset[StateId],
    copies: Mapping[StateId, StateId],
    epoch: int,
) -> HandoverTables:
    """The tables at the start: what the lowest empty states lack is all that arrived before ``epoch``.

    ``copies`` are states of which the new plan has an empty copy.
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
    """The tables once ``state`` has all its rows, from ``epoch`` on."""
    parent = next(node.id for node in new.nodes if state in node.inputs)
    changed: HandoverTables = {}
    for root, entries in tables.items():
        kept = []
        for entry in entries:
            if entry.state != state:
                kept.append(entry)
            elif parent != root:
                missed = {s: entry.bounds.get(s, epoch) for s in parent.streams}
                kept.append(HandoverEntry(parent, missed))
        changed[root] = tuple(kept)
    return changed


def expire(
    tables: Tables, purge: Purge, latest_times: Mapping[int, Mapping[str, int | None]]
) -> HandoverTables:
    """The tables without the entries of which no row can be part of a result any more."""
    return {
        root: tuple(entry for entry in entries if not _is_dead(entry, purge, latest_times))
        for root, entries in tables.items()
    }


def _is_dead(
    entry: HandoverEntry, purge: Purge, latest_times: Mapping[int, Mapping[str, int | None]]
) -> bool:
    latest = {stream: latest_times[epoch][stream] for stream, epoch in entry.bounds.items()}
    times = [time for time in latest.values() if time is not None]
    return len(times) < len(latest) or purge.is_dead(tuple(latest), times)


def bounds_of(entries: Iterable[HandoverEntry]) -> tuple[EpochBounds, ...]:
    """Entries as the engine takes them."""
    return tuple(tuple(sorted(entry.bounds.items())) for entry in entries)
