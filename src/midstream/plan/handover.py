"""Two plans in one layout: how they share the rows between them while a query migrates.

A migration runs the nodes of both plans side by side. An ordinary layout knows nothing of that; what the
engine needs beyond it is here. ``migration/combined_layout.py`` makes these values.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from midstream.plan.layout import Node
from midstream.plan.state_id import StateId

EpochBounds = tuple[tuple[str, int], ...]
"""Streams with an epoch each: rows whose component of every stream among them arrived before its epoch."""

Side = Literal["both", "old", "new"]
"""Which plan of a migration a node belongs to; outside of one, all nodes belong to both."""

InputOf = tuple[int, StateId]
"""An input of a fragment: the fragment's id, and the input's."""


@dataclass(frozen=True, slots=True)
class Restriction:
    """A node produces only rows that lie within one of the bounds."""

    bounds: tuple[EpochBounds, ...]
    early: bool
    """Whether rows are dropped as soon as nothing that they become can lie within; else only at the end."""


@dataclass(frozen=True, kw_only=True)
class Handover:
    """How the two plans of a combined layout share the rows of the query."""

    sides: Mapping[Node, Side]
    """The nodes that only one of the plans has."""
    restrictions: Mapping[Node, Restriction]
    """What nodes of the old plan are restricted to."""
    copies: Mapping[StateId, StateId] = field(default_factory=dict)
    """States that another one follows: it gets the same new rows, but started without any."""
    retention: Mapping[StateId, tuple[EpochBounds, ...]] = field(default_factory=dict)
    """States of which only rows within some bounds are worth storing: only restricted nodes search them."""
    not_stored: frozenset[InputOf] = frozenset()
    """Inputs of fragments whose rows an earlier fragment stores already."""
    not_counted: frozenset[InputOf] = frozenset()
    """Inputs of fragments that bring rows of a stream which another input counts already."""

    def side(self, node: Node) -> Side:
        """The plan that a node belongs to."""
        return self.sides.get(node, "both")


def needs_future_rows(node: Node, state: StateId, streams: Iterable[str]) -> bool:
    """Whether stored rows of an input still lack a component other than those of some streams."""
    others = (other for other in node.inputs if other != state)
    return any(not set(other.streams) <= set(streams) for other in others)


def retention_bounds(
    nodes: Iterable[Node], restrictions: Mapping[Node, Restriction], copied: Iterable[StateId]
) -> dict[StateId, tuple[EpochBounds, ...]]:
    """For each state that only restricted nodes search: the bounds that a stored row must lie within.

    A stored row waits for rows of the other inputs that are yet to come, and these lie beyond every bound.
    So it must lie within a bound that leaves some stream of those inputs open. A state that is copied is all
    that the new plan will have after the migration: every row of it is worth storing.
    """
    bounds_of: dict[StateId, tuple[EpochBounds, ...] | None] = dict.fromkeys(copied)
    for node in nodes:
        restriction = restrictions.get(node)
        for state in node.inputs:
            earlier = bounds_of.get(state, ())
            if restriction is None or not restriction.early or earlier is None:
                bounds_of[state] = None
                continue
            open_bounds = (b for b in restriction.bounds if needs_future_rows(node, state, dict(b)))
            bounds_of[state] = (*earlier, *open_bounds)
    return {state: bounds for state, bounds in bounds_of.items() if bounds is not None}
