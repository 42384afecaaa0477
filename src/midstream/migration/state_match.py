"""Matching two plans: which states of the new plan exist already, which can be moved, which are lacking.

States are matched by their streams. A state is **shared** if both plans store it in the same location:
searched by the same keys, in the same engine partitions, with references that lead to the same rows. It is
**moved** by a shuffle if the new plan needs it elsewhere. Otherwise it is **empty** at first, and the
strategy says what becomes of the rows that it lacks.

A moved state is maintained by the new plan alone, so it is moved only if nothing below it is lacking. A
shared one is maintained by both plans together, and may have anything below it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from midstream.engine.migration_step import Move
from midstream.migration.fusion import Pair, can_fuse
from midstream.plan.layout import Fragment, Key, Layout
from midstream.plan.state_id import StateId


@dataclass(frozen=True)
class StateMatch:
    """What the new plan has when it begins."""

    layout: Layout
    """The new plan's; its states have the ids that they will have."""
    state_ids: Mapping[StateId, StateId]
    """Those ids, where they are not just the streams."""
    shared: frozenset[StateId]
    moves: tuple[Move, ...]
    empty: frozenset[StateId]


@dataclass(frozen=True)
class StateLocation:
    """Where and how a plan stores a state."""

    state: StateId
    fragment: int
    key: Key
    arrangements: frozenset[Key]
    is_input: bool
    refers_to: frozenset[StateId]


def match_states(old: Layout, new: Layout, migration: int) -> StateMatch:
    """Match the states of two plans; ``migration`` is the number of the one that would start new states."""
    old_locations = {location.state.streams: location for location in _locations(old)}
    ids: dict[StateId, StateId] = {}
    shared: set[StateId] = set()
    moves: dict[StateId, Move] = {}
    empty: set[StateId] = set()
    pairs: list[Pair] = []
    for wanted in sorted(_locations(new), key=lambda location: len(location.state.streams)):
        existing = old_locations.get(wanted.state.streams)
        if existing is not None and _is_same(wanted, existing, ids):
            # Both plans' shares of joined rows must meet: the fragments that store them run as one.
            pair = [] if wanted.state.is_base else [(existing.fragment, wanted.fragment)]
            if can_fuse(old, new, [*pairs, *pair]):
                pairs += pair
                shared.add(existing.state)
                ids[wanted.state] = existing.state
                continue
        started = wanted.state.started_by(migration)
        ids[wanted.state] = started
        below = {ids[s] for s in ids if set(s.streams) < set(wanted.state.streams)}
        if wanted.is_input and existing is not None and not below & empty:
            moves[started] = Move(existing.state, started)
        else:
            empty.add(started)
    changed = {plain: state for plain, state in ids.items() if plain != state}
    return StateMatch(
        new.renamed(changed), changed, frozenset(shared), tuple(moves.values()), frozenset(empty)
    )


def _locations(layout: Layout) -> Iterator[StateLocation]:
    for fragment in layout.fragments:
        for state, keys in fragment.arrangements.items():
            is_input = state in fragment.inputs_by_id
            refers_to = frozenset((state,)) if is_input else _referred(fragment, state)
            yield StateLocation(state, fragment.id, fragment.key, frozenset(keys), is_input, refers_to)


def _referred(fragment: Fragment, state: StateId) -> frozenset[StateId]:
    streams = set(state.streams)
    return frozenset(one.id for one in fragment.inputs if set(one.streams) <= streams)


def _is_same(wanted: StateLocation, existing: StateLocation, ids: Mapping[StateId, StateId]) -> bool:
    if (wanted.key, wanted.arrangements, wanted.is_input) != (
        existing.key,
        existing.arrangements,
        existing.is_input,
    ):
        return False
    return wanted.is_input or {ids.get(state, state) for state in wanted.refers_to} == existing.refers_to
