"""Rescaling: another number of engine partitions, while the query runs or when it is started again.

Which partition has which group follows from the number of partitions and the routings that stored rows were
placed by (``engine/places.py``). A request for another number is applied by the first epoch that is begun
after it, unless it has to wait: rows that were moved by a format before 7 have references that are theirs
only within a partition, so two partitions must not come to read the slices of one another.
"""

from __future__ import annotations

from functools import lru_cache

import msgspec
from msgspec.structs import replace

from midstream.engine.places import Places
from midstream.engine.references import MAX_PARTITIONS
from midstream.errors import CheckpointError, OptionError, show_value
from midstream.protocol.intent import Intent
from midstream.protocol.settings import Settings, read_persisted_options
from midstream.query.topology import Topology
from midstream.state.json_with_digest import RESTORE
from midstream.state.manifest import Manifest
from midstream.state.routing_table import RoutingTable, Shares

_ROUTINGS = msgspec.msgpack.Decoder(tuple[RoutingTable, ...])


def first_routing(settings: Settings, topology: Topology | None = None) -> RoutingTable:
    """The routing that a query begins with; at sites, it is the topology that says how many partitions."""
    if topology is not None:
        sites = topology.partitions_of_sites
        check_partitions(max(sites.values()), settings.groups)
        return RoutingTable(0, check_partitions(sum(sites.values()), MAX_PARTITIONS), sites=sites)
    partitions, shares = check_partitions(settings.partitions, settings.groups), settings.shares
    if shares and not are_valid_shares(shares, partitions):
        raise OptionError(
            "initialShares must have a number for each partition, and the first must not be 0",
            got=f"{', '.join(map(str, shares))} for {partitions}",
            hint="write as many numbers as there are partitions, e.g. '2,1,1'",
        )
    return RoutingTable(0, partitions, shares)


def check_same_shares(settings: Settings, manifest: Manifest) -> None:
    """Refuse other shares than those by which groups are divided."""
    shares = manifest.routings[-1].shares
    if settings.shares and settings.shares != shares:
        raise OptionError(
            f"initialShares must be those of the checkpoint: {','.join(map(str, shares)) or 'none'}",
            got=",".join(map(str, settings.shares)),
            hint="leave the option out; balance moves groups while the query runs",
        )


def places_of(manifest: Manifest) -> Places:
    """Where groups are after the epoch of a manifest, and where they were."""
    return _places(msgspec.msgpack.encode(manifest.definition), msgspec.msgpack.encode(manifest.routings))


@lru_cache(maxsize=64)
def _places(definition: bytes, routings: bytes) -> Places:
    """Made once, as what follows from places is kept with them. Both have no hash, so they come encoded."""
    groups = read_persisted_options(msgspec.msgpack.decode(definition)).groups
    return Places(groups, _ROUTINGS.decode(routings))


def next_places(manifest: Manifest, intent: Intent) -> Places:
    """Where groups are in the epoch after ``manifest``."""
    places, partitions = places_of(manifest), intent.partitions
    if partitions is None or partitions == places.partitions:
        return places
    return places.rescaled(intent.epoch, partitions)


def with_places(manifest: Manifest, intent: Intent, places: Places) -> Manifest:
    """The manifest of an epoch, which has its slices, with what it says of places."""
    return replace(
        manifest,
        routings=places.after(manifest.slices),
        applied_rescales=intent.applied_rescales,
        waiting_partitions=intent.waiting_partitions or 0,
    )


def may_rescale(manifest: Manifest) -> bool:
    """Whether no replacement is under way, nor a row stored whose reference others may have elsewhere.

    A plan keeps the states that a migration has begun, so what counts is when their rows came: a slice that
    was merged from older ones begins with the first of them.
    """
    limit = manifest.ambiguous_migrations
    return manifest.replacement is None and not any(
        slice_.owner.kind == "payload"
        and 1 <= slice_.owner.state.migration <= limit
        and slice_.first_epoch < manifest.unambiguous_since
        for slice_ in manifest.slices
    )


def check_partitions(partitions: object, groups: int) -> int:
    """A number of partitions that was asked for, if there can be so many."""
    if not isinstance(partitions, int) or partitions is True or not 1 <= partitions <= MAX_PARTITIONS:
        must = f"partitions must be a whole number from 1 to {MAX_PARTITIONS}"
        raise OptionError(must, got=show_value(partitions))
    if partitions > groups:
        raise OptionError(
            "groups must be at least as many as partitions",
            got=f"{groups} and {partitions}",
            hint="the number of groups is fixed when a query begins: choose it with the option groups",
        )
    return partitions


def check_routings(manifest: Manifest, groups: int) -> None:
    """Refuse routings that cannot be those of a query with so many groups, and slices that have none."""
    epochs = [table.since for table in manifest.routings]
    is_sound = bool(epochs) and epochs == sorted(set(epochs)) and epochs[0] >= 0
    is_sound &= epochs[-1:] <= [max(manifest.epoch, 0)]
    if not is_sound or not all(_is_sound(table, groups) for table in manifest.routings):
        got = ", ".join(f"{table.partitions} since epoch {table.since}" for table in manifest.routings)
        must = "a manifest must have routings that its groups and epochs allow"
        raise CheckpointError(must, got=got or "none", hint=RESTORE)
    partitions = {table.since: table.partitions for table in manifest.routings}
    for slice_ in manifest.slices:
        if not 0 <= slice_.owner.partition < partitions.get(slice_.placed, 0):
            got = f"{slice_.name} of partition {slice_.owner.partition}, placed in epoch {slice_.placed}"
            raise CheckpointError("a slice must belong to a partition that existed", got=got, hint=RESTORE)


def _is_sound(table: RoutingTable, groups: int) -> bool:
    partitions = range(table.partitions)
    moved = [place for places in table.moved.values() for place in places.items()]
    spread = [place for places in table.spread.values() for place in places.items()]
    at_one_place = max(table.sites.values()) if table.sites else table.partitions
    return (
        1 <= at_one_place <= groups
        and at_one_place <= table.partitions <= MAX_PARTITIONS
        and (not table.sites or (sum(table.sites.values()) == table.partitions and not table.moved))
        and (not table.shares or are_valid_shares(table.shares, table.partitions))
        and all(0 < group < groups and partition in partitions for group, partition in moved)
        and all(
            0 <= hot < 1 << 64
            and len(set(place.partitions)) == len(place.partitions) > 1
            and set(place.partitions) <= set(partitions)
            for hot, place in spread
        )
    )


def are_valid_shares(shares: Shares, partitions: int) -> bool:
    """Whether groups can be divided among partitions in these proportions; the first must have some."""
    return len(shares) == partitions and shares[0] > 0 and min(shares) >= 0
