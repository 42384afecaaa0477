"""Matching two plans: which states of the new plan are there already, which can be moved, which are lacking.

States are matched by their streams. A state is **shared**, moved by reference, if both plans keep it in the
same place: searched by the same keys, in the same engine partitions, with references that lead to the
same rows. It is **moved** by a shuffle if the new plan wants it elsewhere. Otherwise it is **empty** at
first, and the strategy says what becomes of the rows that it lacks.

A moved state is maintained by the new plan alone, so it is moved only if nothing below it is lacking. A
shared one is maintained by both plans together, and may have anything below it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from midstream.engine.program import Move
from midstream.migration.fusion import Pair, can_fuse
from midstream.plan.layout import Fragment, Key, Layout, StateId, restarted, streams_of


@dataclass(frozen=True)
class Match:
    """What the new plan finds when it begins."""

    layout: Layout
    """The new plan's; its states have the ids that they will have."""
    names: Mapping[StateId, StateId]
    """Those ids, where they are not just the streams."""
    shared: frozenset[StateId]
    moves: tuple[Move, ...]
    empty: frozenset[StateId]


@dataclass(frozen=True)
class StateLocation:
    """Where and how a plan keeps a state."""

    state: StateId
    fragment: int
    key: Key
    arrangements: frozenset[Key]
    is_input: bool
    refers_to: frozenset[StateId]


def match(old: Layout, new: Layout, number: int) -> Match:
    """Match the states of two plans; ``number`` is that of the migration, and of the states it begins."""
    theirs = {streams_of(place.state): place for place in _fuse(old)}
    names: dict[StateId, StateId] = {}
    shared: set[StateId] = set()
    moves: dict[StateId, Move] = {}
    empty: set[StateId] = set()
    pairs: list[Pair] = []
    for mine in sorted(_fuse(new), key=lambda place: len(streams_of(place.state))):
        other = theirs.get(streams_of(mine.state))
        if other is not None and _alike(mine, other, names):
            # Both plans' shares of joined rows must come together: the fragments that keep them run as one.
            pair = [] if len(streams_of(mine.state)) == 1 else [(other.fragment, mine.fragment)]
            if can_fuse(old, new, [*pairs, *pair]):
                pairs += pair
                shared.add(other.state)
                names[mine.state] = other.state
                continue
        anew = restarted(mine.state, number)
        names[mine.state] = anew
        below = {names[s] for s in names if set(streams_of(s)) < set(streams_of(mine.state))}
        if mine.is_input and other is not None and not below & empty:
            moves[anew] = Move(other.state, anew)
        else:
            empty.add(anew)
    changed = {plain: name for plain, name in names.items() if plain != name}
    return Match(new.renamed(changed), changed, frozenset(shared), tuple(moves.values()), frozenset(empty))


def _fuse(layout: Layout) -> Iterator[StateLocation]:
    for fragment in layout.fragments:
        for state, keys in fragment.arrangements.items():
            is_input = state in fragment.by_id
            refers_to = frozenset((state,)) if is_input else _referred(fragment, state)
            yield StateLocation(state, fragment.id, fragment.key, frozenset(keys), is_input, refers_to)


def _referred(fragment: Fragment, state: StateId) -> frozenset[StateId]:
    streams = set(streams_of(state))
    return frozenset(one.id for one in fragment.inputs if set(one.streams) <= streams)


def _alike(mine: StateLocation, other: StateLocation, names: Mapping[StateId, StateId]) -> bool:
    if (mine.key, mine.arrangements, mine.is_input) != (other.key, other.arrangements, other.is_input):
        return False
    return mine.is_input or {names.get(state, state) for state in mine.refers_to} == other.refers_to
