"""Matching the states of two plans: which the new plan shares, which are moved, which start empty.

States are matched by their streams. A state is **shared** if both plans store it in the same location:
searched by the same keys, in the same engine partitions, with references that lead to the same rows. It is
**moved** by a shuffle if the new plan needs it in another location. Otherwise it starts **empty**, and the
strategy decides how the rows that it lacks are replaced.

A moved state is maintained by the new plan alone, so it is moved only if no state below it is empty. A shared
state is maintained by both plans together, so the states below it do not matter.
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
    """The states of the new plan when the migration begins."""

    layout: Layout
    """The layout of the new plan, with the final ids of its states."""
    state_ids: Mapping[StateId, StateId]
    """The final ids, where they differ from the streams alone."""
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
    """Match the states of two plans; ``migration`` is the number of the one that starts new states."""
    old_locations = {loc.state.streams: loc for loc in _locations(old)}
    ids: dict[StateId, StateId] = {}
    shared: set[StateId] = set()
    moves: dict[StateId, Move] = {}
    empty: set[StateId] = set()
    pairs: list[Pair] = []
    for location in sorted(_locations(new), key=lambda loc: len(loc.state.streams)):
        existing = old_locations.get(location.state.streams)
        if existing is not None and _is_same(location, existing, ids):
            # Both plans insert combined rows into a shared state: the fragments that store it must be fused.
            pair = [] if location.state.is_base else [(existing.fragment, location.fragment)]
            if can_fuse(old, new, [*pairs, *pair]):
                pairs += pair
                shared.add(existing.state)
                ids[location.state] = existing.state
                continue
        started = location.state.started_by(migration)
        ids[location.state] = started
        below = {ids[s] for s in ids if set(s.streams) < set(location.state.streams)}
        if location.is_input and existing is not None and not below & empty:
            moves[started] = Move(existing.state, started)
        else:
            empty.add(started)
    new_ids = {streams: state for streams, state in ids.items() if streams != state}
    return StateMatch(
        new.renamed(new_ids), new_ids, frozenset(shared), tuple(moves.values()), frozenset(empty)
    )


def _locations(layout: Layout) -> Iterator[StateLocation]:
    for fragment in layout.fragments:
        for state, keys in fragment.arrangements.items():
            is_input = state in fragment.inputs_by_id
            refers_to = frozenset((state,)) if is_input else _referenced_inputs(fragment, state)
            yield StateLocation(state, fragment.id, fragment.key, frozenset(keys), is_input, refers_to)


def _referenced_inputs(fragment: Fragment, state: StateId) -> frozenset[StateId]:
    streams = set(state.streams)
    return frozenset(input_ for input_ in fragment.inputs_by_id if set(input_.streams) <= streams)


def _is_same(location: StateLocation, existing: StateLocation, ids: Mapping[StateId, StateId]) -> bool:
    if (location.key, location.arrangements, location.is_input) != (
        existing.key,
        existing.arrangements,
        existing.is_input,
    ):
        return False
    return location.is_input or {ids.get(state, state) for state in location.refers_to} == existing.refers_to
