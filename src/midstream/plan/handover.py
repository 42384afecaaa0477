"""The hand-over from one plan to another: how two plans in one layout divide the rows between them.

During a migration, the nodes of both plans run side by side. A layout does not say which plan produces which
rows; a :class:`Handover` does. ``migration/combined_layout.py`` builds it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from midstream.plan.layout import Node
from midstream.plan.state_id import StateId

EpochBounds = tuple[tuple[str, int], ...]
"""An epoch for each of some streams: a row lies within if its component of each arrived before the epoch."""

PlanSide = Literal["both", "old", "new"]
"""The plan of a migration that a node belongs to; without a migration, all nodes belong to both."""

FragmentInputKey = tuple[int, StateId]
"""An input of a fragment, as the ids of both."""


@dataclass(frozen=True, slots=True)
class Restriction:
    """A node produces only rows that lie within one of the bounds."""

    bounds: tuple[EpochBounds, ...]
    prunes: bool
    """Whether rows are dropped as soon as no result with them can lie within; else only at the end."""


@dataclass(frozen=True, kw_only=True)
class Handover:
    """How the two plans of a combined layout divide the rows of the query."""

    sides: Mapping[Node, PlanSide]
    """The nodes that belong to only one of the plans."""
    restrictions: Mapping[Node, Restriction]
    """The rows that nodes of the old plan are restricted to."""
    copies: Mapping[StateId, StateId] = field(default_factory=dict)
    """For each state that is copied, its copy: it started without rows, and gets the same new rows."""
    destinations: Mapping[StateId, tuple[StateId, ...]] = field(default_factory=dict)
    """For a border that the plans store in different locations, by each of its ids: the states that get its
    rows."""
    relevance: Mapping[StateId, tuple[EpochBounds, ...]] = field(default_factory=dict)
    """For a border where a restricted node searches it: the bounds within which rows are needed."""
    retention: Mapping[StateId, tuple[EpochBounds, ...]] = field(default_factory=dict)
    """For states that only restricted nodes search: the bounds within which rows are stored."""
    stored_elsewhere: frozenset[FragmentInputKey] = frozenset()
    """Inputs whose rows another fragment stores."""
    counted_elsewhere: frozenset[FragmentInputKey] = frozenset()
    """Inputs whose rows are counted at another input of the same stream."""

    def side(self, node: Node) -> PlanSide:
        """The plan that a node belongs to."""
        return self.sides.get(node, "both")


def needs_future_rows(node: Node, state: StateId, streams: Iterable[str]) -> bool:
    """Whether some other input of the node has streams that are not in ``streams``."""
    other_inputs = (other for other in node.inputs if other != state)
    return any(not set(other.streams) <= set(streams) for other in other_inputs)


def relevance_bounds(
    nodes: Iterable[Node], restrictions: Mapping[Node, Restriction], states: Collection[StateId]
) -> dict[StateId, tuple[EpochBounds, ...]]:
    """For each of the states that a restricted node searches: the bounds that a row must lie within."""
    return {
        state: restrictions[node].bounds
        for node in nodes
        if node in restrictions and restrictions[node].prunes
        for state in node.inputs
        if state in states
    }


def retention_bounds(
    nodes: Iterable[Node], restrictions: Mapping[Node, Restriction], copied: Iterable[StateId]
) -> dict[StateId, tuple[EpochBounds, ...]]:
    """For each state that only restricted nodes search: the bounds that a stored row must lie within.

    A stored row is of use only with future rows of the other inputs, and these lie beyond every bound. So it
    must lie within a bound that does not mention some stream of those inputs. A copied state is the one that
    the new plan keeps after the migration: all its rows are stored.
    """
    bounds_of: dict[StateId, tuple[EpochBounds, ...] | None] = dict.fromkeys(copied)
    for node in nodes:
        restriction = restrictions.get(node)
        for state in node.inputs:
            state_bounds = bounds_of.get(state, ())
            if restriction is None or not restriction.prunes or state_bounds is None:
                bounds_of[state] = None
                continue
            open_bounds = (b for b in restriction.bounds if needs_future_rows(node, state, dict(b)))
            bounds_of[state] = (*state_bounds, *open_bounds)
    return {state: bounds for state, bounds in bounds_of.items() if bounds is not None}
