"""Borders: states that both plans have, and how the rows of each reach both locations.

The rows of a border are the same whichever plan produces them. If both plans do the same below it, only the
new plan's nodes run; otherwise each plan produces a share. Either way every new row reaches the state's
locations in both plans, so that everything above sees all of them, and nothing is computed twice.

Rows reach a location that is an *input* of a fragment from any fragment that runs before: they are sent, with
their payload. A location *inside* a fragment is reached only from that fragment, because its rows refer to
the payload there. So the fragments of the two plans must be fused, and have the same inputs below the border.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from midstream.migration.fusion import FusionConstraints
from midstream.migration.state_location import StateLocation, state_locations
from midstream.plan.layout import Layout
from midstream.plan.state_id import StateId


def constraints_between(
    old: Layout, new: Layout, borders: Iterable[StateId], replaced: Collection[StateId]
) -> FusionConstraints:
    """What the borders require of the fragments; below ``replaced`` ones, both plans produce rows."""
    old_locations = {location.state.streams: location for location in state_locations(old)}
    new_locations = {location.state: location for location in state_locations(new)}
    constraints = FusionConstraints()
    for border in borders:
        before, after = old_locations[border.streams], new_locations[border]
        if before.state == after.state:
            constraints += shared_constraints(before, after)
        else:
            constraints += border_constraints(before, after, replaced=border in replaced)
    return constraints


def shared_constraints(before: StateLocation, after: StateLocation) -> FusionConstraints:
    """Constraints for a state that both plans store in the same location: both insert combined rows there."""
    return FusionConstraints(pairs=() if after.state.is_base else ((before.fragment, after.fragment),))


def border_constraints(before: StateLocation, after: StateLocation, *, replaced: bool) -> FusionConstraints:
    """Constraints for a state that the plans store in different locations."""
    constraints = FusionConstraints()
    if before.is_input:
        constraints += FusionConstraints(edges=((("new", after.producer), ("old", before.fragment)),))
    if replaced and after.is_input:
        constraints += FusionConstraints(edges=((("old", before.producer), ("new", after.fragment)),))
    if not before.is_input or (replaced and not after.is_input):
        constraints += FusionConstraints(pairs=((before.producer, after.producer),))
    return constraints


def can_reach_both(
    before: StateLocation, after: StateLocation, ids: Mapping[StateId, StateId], *, replaced: bool
) -> bool:
    """Whether rows reach both locations, if the fragments can be linked; ``ids`` are those of ``after``."""
    all_sent = before.is_input and (after.is_input or not replaced)
    return all_sent or {ids[source] for source in after.sources} == before.sources
