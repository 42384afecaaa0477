"""Matching the states of two plans: which the new plan shares, which are moved, which start empty.

States are matched by their streams. A state is **shared** if both plans store it in the same location:
searched by the same keys, in the same engine partitions, with references that lead to the same rows. It is
**moved** by a shuffle if the new plan needs it in another location. Otherwise it starts **empty**, and the
strategy decides how the rows that it lacks are replaced.

A combined state that both plans have is a **border** if its new rows can reach both locations, whichever plan
produces them (``migration/borders.py``). Then the states below it do not matter. If they cannot, the new plan
maintains the state alone, and it is moved only if no state below it is incomplete.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from midstream.engine.migration_step import Move
from midstream.migration.borders import border_constraints, can_reach_both, shared_constraints
from midstream.migration.fusion import FusionConstraints, can_fuse
from midstream.migration.handover_tables import is_replaced, nodes_between
from midstream.migration.plan_pair import PlanPair
from midstream.migration.state_location import StateLocation, state_locations
from midstream.plan.layout import Layout
from midstream.plan.state_id import StateId


@dataclass(frozen=True)
class StateMatch:
    """The states of the new plan when the migration begins."""

    plans: PlanPair
    """Both plans, with the final ids of the new one's states."""
    state_ids: Mapping[StateId, StateId]
    """The final ids, where they differ from the streams alone."""
    moves: tuple[Move, ...]
    """The states that are moved at once."""
    moving: frozenset[StateId]
    """The states that are moved in portions."""
    empty: frozenset[StateId]

    @property
    def incomplete(self) -> frozenset[StateId]:
        """The states of the new plan that lack rows."""
        return self.moving | self.empty


def match_states(
    old: Layout,
    new: Layout,
    migration: int,
    *,
    isolated: bool = False,
    large: frozenset[StateId] = frozenset(),
) -> StateMatch:
    """Match the states of two plans; ``migration`` is the number of the one that starts new states.

    If the plans are ``isolated``, no state is moved. ``large`` states of the old plan are moved in portions.
    """
    matching = _Matching(old, new, migration, isolated, large)
    # A state comes after those below it.
    for location in sorted(state_locations(new), key=lambda location: len(location.state.streams)):
        matching.add(location)
    ids = {streams: state for streams, state in matching.ids.items() if streams != state}
    plans = PlanPair(
        old=old,
        new=new.renamed(ids),
        number=migration,
        isolated=isolated,
        moved_borders=frozenset(matching.borders),
        moved=frozenset(move.target for move in matching.moves),
    )
    return StateMatch(
        plans=plans,
        state_ids=ids,
        moves=tuple(matching.moves),
        moving=frozenset(matching.moving),
        empty=frozenset(matching.empty | set(plans.copies.values())),
    )


@dataclass
class _Matching:
    """The states that are matched so far."""

    old: Layout
    new: Layout
    migration: int
    isolated: bool
    large: frozenset[StateId]
    ids: dict[StateId, StateId] = field(default_factory=dict)
    shared: set[StateId] = field(default_factory=set)
    borders: set[StateId] = field(default_factory=set)
    moves: list[Move] = field(default_factory=list)
    moving: set[StateId] = field(default_factory=set)
    empty: set[StateId] = field(default_factory=set)
    constraints: FusionConstraints = field(default_factory=FusionConstraints)

    def __post_init__(self) -> None:
        self.old_locations = {location.state.streams: location for location in state_locations(self.old)}

    def add(self, location: StateLocation) -> None:
        """Match the next state of the new plan."""
        state, existing = location.state, self.old_locations.get(location.state.streams)
        if existing is not None and self._is_shared(location, existing):
            self.shared.add(existing.state)
            self.ids[state] = existing.state
            return
        started = self.ids[state] = state.started_by(self.migration)
        is_border = existing is not None and not state.is_base and self._becomes_border(location, existing)
        if is_border:
            self.borders.add(started)
        below = {self.ids[s] for s in self.ids if set(s.streams) < set(state.streams)}
        is_maintained = is_border or not below & (self.empty | self.moving)
        if existing is None or not location.is_input or not is_maintained or self.isolated:
            self.empty.add(started)
        elif existing.state in self.large:
            self.moving.add(started)
        else:
            self.moves.append(Move(existing.state, started))

    def _is_shared(self, location: StateLocation, existing: StateLocation) -> bool:
        if (location.key, location.arrangements, location.is_input) != (
            existing.key,
            existing.arrangements,
            existing.is_input,
        ):
            return False
        same_rows = location.is_input or {self.ids[s] for s in location.sources} == existing.sources
        return same_rows and self._constrain(shared_constraints(existing, location))

    def _becomes_border(self, location: StateLocation, existing: StateLocation) -> bool:
        borders = {state for state in self.shared | self.borders if not state.is_base}
        before, after = (nodes_between(layout, location.state, borders) for layout in (self.old, self.new))
        same = {move.target: move.source for move in self.moves}
        replaced = is_replaced(before, [node.renamed(self.ids) for node in after], same)
        return can_reach_both(existing, location, self.ids, replaced=replaced) and self._constrain(
            border_constraints(existing, location, replaced=replaced)
        )

    def _constrain(self, constraints: FusionConstraints) -> bool:
        """Link the fragments in this way too, if that is possible."""
        if not can_fuse(self.old, self.new, self.constraints + constraints):
            return False
        self.constraints += constraints
        return True
