"""The two plans of a migration, and in which sub-plans they differ."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

from midstream.migration.borders import constraints_between
from midstream.migration.fusion import FusionConstraints, can_fuse
from midstream.migration.handover_tables import ReplacedSubplan, replaced_subplans
from midstream.plan.layout import Layout
from midstream.plan.state_id import StateId


@dataclass(frozen=True, kw_only=True)
class PlanPair:
    """Two plans that run side by side."""

    old: Layout
    new: Layout
    number: int
    """The number of the migration."""
    isolated: bool
    moved_borders: frozenset[StateId]
    """The borders that the plans store in different locations, by their ids in the new plan."""
    moved: frozenset[StateId]
    """The states of the new plan that started with all rows of one of the old plan."""

    @cached_property
    def shared(self) -> frozenset[StateId]:
        """The states that both plans store in the same location."""
        return self.old.states & self.new.states

    @cached_property
    def borders(self) -> frozenset[StateId]:
        """The combined states whose new rows reach both plans."""
        return self.moved_borders | {state for state in self.shared if not state.is_base}

    @cached_property
    def subplans(self) -> list[ReplacedSubplan]:
        """The sub-plans in which the plans differ."""
        return replaced_subplans(self.old, self.new, self.borders, self.sources_of(self.moved))

    @cached_property
    def copies(self) -> dict[StateId, StateId]:
        """For shared states, the empty copies that an isolated new plan starts with."""
        nodes = (node for subplan in self.subplans for node in subplan.new if self.isolated)
        return {s: s.started_by(self.number) for node in nodes for s in node.inputs if s in self.shared}

    @cached_property
    def constraints(self) -> FusionConstraints:
        """What the borders require of the fragments."""
        replaced = {subplan.root for subplan in self.subplans}
        return constraints_between(self.old, self.new, sorted(self.borders), replaced)

    @property
    def can_run_together(self) -> bool:
        """Whether the fragments can be linked as the borders require."""
        return can_fuse(self.old, self.new, self.constraints)

    def sources_of(self, states: Iterable[StateId]) -> Mapping[StateId, StateId]:
        """For states of the new plan, those of the old plan that have the same streams."""
        old_ids = {state.streams: state for state in self.old.states}
        return {state: old_ids[state.streams] for state in states}
