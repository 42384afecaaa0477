"""Cuts: states that both plans have, and how the rows of each reach both locations.

The rows of a cut are the same whichever plan produces them. If both plans do the same below it, only the new
plan's nodes run; otherwise each plan produces a share. Either way every new row reaches both plans' locations
of the state, so that everything above sees all of them, and nothing is computed twice.

Rows reach a location that is an *input* of a fragment from any fragment that runs before: they are sent, with
their payload. A location *inside* a fragment is reached only from that fragment, because its rows refer to
the payload there. So the fragments of the two plans must be fused, and have the same inputs below the cut.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from midstream.migration.fusion import Links
from midstream.migration.state_location import StateLocation, state_locations
from midstream.plan.layout import Layout
from midstream.plan.state_id import StateId


def links_between(old: Layout, new: Layout, cuts: Iterable[StateId], replaced: Collection[StateId]) -> Links:
    """What the cuts require of the fragments; below those that are ``replaced``, both plans produce rows."""
    old_locations = {location.state.streams: location for location in state_locations(old)}
    new_locations = {location.state: location for location in state_locations(new)}
    links = Links()
    for cut in cuts:
        before, after = old_locations[cut.streams], new_locations[cut]
        if before.state == after.state:
            links += shared_links(before, after)
        else:
            links += cut_links(before, after, replaced=cut in replaced)
    return links


def shared_links(before: StateLocation, after: StateLocation) -> Links:
    """Links for a state that both plans store in the same location: both insert combined rows there."""
    return Links() if after.state.is_base else Links(pairs=((before.fragment, after.fragment),))


def cut_links(before: StateLocation, after: StateLocation, *, replaced: bool) -> Links:
    """Links for a state that the plans store in different locations."""
    links = Links()
    if before.is_input:
        links += Links(edges=((("new", after.producer), ("old", before.fragment)),))
    if replaced and after.is_input:
        links += Links(edges=((("old", before.producer), ("new", after.fragment)),))
    if not before.is_input or (replaced and not after.is_input):
        links += Links(pairs=((before.producer, after.producer),))
    return links


def can_reach_both(
    before: StateLocation, after: StateLocation, ids: Mapping[StateId, StateId], *, replaced: bool
) -> bool:
    """Whether rows reach both locations, if the fragments can be linked; ``ids`` are those of ``after``."""
    all_sent = before.is_input and (after.is_input or not replaced)
    return all_sent or {ids[source] for source in after.sources} == before.sources
