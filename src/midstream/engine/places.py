"""Places: which engine partition has which partition group, and where that group's rows were stored before.

When places change, because there is another number of partitions, a group was relocated or a hot key is
spread, groups get other partitions, and nothing else happens: rows from before stay in the slices of the
partitions that had their groups then. A slice is sorted by hash, and a group is a range of hashes, so several
partitions can search one slice, each for the rows of its own groups:

    table        since epoch 0              since epoch 7
    partitions   0            1             0      1      2      3
    groups       0 1 2 3      4 5 6 7       0 1    2 3    4 5    6 7
    slices       [0-3]        [0-3]         new rows
                   read by 0, 1  by 2, 3

Every row is in one slice of each arrangement. A partition that searches a slice, for rows of its own groups,
finds only rows of these. One that *scans* a slice must leave out what others have. Hot keys that several
partitions share are an exception (``engine/key_places.py``).

Each slice has one *keeper*, the partition that merges it. Merged rows go into slices of the partitions that
have their groups now. So moved rows are adopted little by little, by the merging that happens anyway.

Groups have places by the key of their fragments, since a migration may share states between fragments of the
same key. The first group stays where it is: rows that no key places have the first hash, and they are
searched by any key.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from msgspec.structs import replace as replace_struct

from midstream.engine.hashing import Hashes
from midstream.engine.key_places import Groups, KeyPlaces, Owners, Ranges
from midstream.engine.routing import Place, Routing, divided
from midstream.plan.layout import Key
from midstream.query.network import Site
from midstream.state.routing_table import KeyName, RoutingTable, Spread
from midstream.state.slices import Slice

UNPLACED_PARTITION = 0
"""The partition with all rows of nodes that no key places: these have the first hash."""


def key_name(key: Key, site: Site = "") -> KeyName:
    """The name of a key, at a site if streams live at sites, in routings."""
    name = ",".join(map(str, key))
    return f"{site}:{name}" if site else name


@dataclass(frozen=True)
class Places:
    """The current routing, and those by which stored rows were placed."""

    groups: int
    """How many groups there are."""
    tables: tuple[RoutingTable, ...]
    """Oldest first; the last is the current one."""

    @property
    def partitions(self) -> int:
        """The number of engine partitions."""
        return self.tables[-1].partitions

    @property
    def since(self) -> int:
        """The epoch since which groups are where they are."""
        return self.tables[-1].since

    @cached_property
    def partitions_at(self) -> dict[Site, range]:
        """The partitions of each site; empty if streams live at none."""
        found, first = {}, 0
        for site, count in self.tables[-1].sites.items():
            found[site] = range(first, first + count)
            first += count
        return found

    @cached_property
    def site_of(self) -> dict[int, Site]:
        """The site of each partition."""
        return {partition: site for site, owned in self.partitions_at.items() for partition in owned}

    def home(self, site: Site) -> int:
        """The partition with all rows, of a site, of nodes that no key places: these have the first hash."""
        return self.partitions_at[site][0] if site else UNPLACED_PARTITION

    def runs_at(self, partition: int, site: Site) -> bool:
        """Whether a partition runs what is at a site; all run what is at none."""
        return not site or partition in self.partitions_at[site]

    def routing(self, key: Key, site: Site = "") -> Routing:
        """Which partition has which group of a key."""
        return self.of_key(key, site).routing

    def rescaled(self, epoch: int, partitions: int) -> Places:
        """The places from an epoch on, with groups divided evenly among another number of partitions."""
        return self._with_table(RoutingTable(epoch, partitions))

    def relocated(self, epoch: int, moved: Mapping[KeyName, Mapping[int, int]]) -> Places:
        """The places from an epoch on, with groups of some keys in other partitions."""
        now = self.tables[-1]
        after = {name: {**now.moved.get(name, {}), **groups} for name, groups in moved.items()}
        return self._with_table(replace_struct(now, since=epoch, moved={**now.moved, **after}))

    def spread(self, epoch: int, spread: Mapping[KeyName, Mapping[int, Spread]]) -> Places:
        """The places from an epoch on, in which partitions share these hot keys, and no others."""
        some = {name: dict(keys) for name, keys in spread.items() if keys}
        return self._with_table(replace_struct(self.tables[-1], since=epoch, spread=some))

    @property
    def gathered(self) -> Places:
        """The same as if no partitions shared a hot key: then each row is one partition's."""
        return self.spread(self.since + 1, {}) if self.tables[-1].spread else self

    def _with_table(self, table: RoutingTable) -> Places:
        # Before the first epoch there may be a table of the same epoch, by which nothing was placed.
        before = (earlier for earlier in self.tables if earlier.since < table.since)
        return Places(self.groups, (*before, table))

    def __reduce__(self) -> tuple[type[Places], tuple[int, tuple[RoutingTable, ...]]]:
        """Tasks get no more than what the rest follows from."""
        return Places, (self.groups, self.tables)

    def groups_of(self, partition: int, key: Key) -> list[int]:
        """The groups of a key of which a partition has rows now."""
        return self.of_key(key).groups_of(partition)

    def ever_held(self, partition: int, key: Key) -> Groups:
        """The groups of which a partition has rows, or had when rows were stored that are still there."""
        return self.of_key(key).held(partition, 0, len(self.tables))

    def held(self, slice_: Slice) -> Groups:
        """The groups whose rows a slice may have: those that its partition had."""
        return self._of(slice_).held(slice_.owner.partition, *self._tables_of(slice_))

    def readers(self, slice_: Slice) -> tuple[int, ...]:
        """The partitions that have rows of a slice now, in ascending order."""
        owner = slice_.owner
        if owner.kind == "deferred":
            # Results belong to no group.
            return (owner.partition % self.partitions,)
        if self._are_fixed:
            return (owner.partition,)
        places = self._of(slice_)
        first, end = self._tables_of(slice_)
        # Whoever has a row may refer to payload by whatever copy of it.
        exactly = places.has_hot_keys and owner.kind != "payload"
        streams = owner.state.streams if exactly else None
        known = owner.key, owner.state.site, owner.partition, first, end, streams
        if known not in self._readers:
            if end == len(self.tables) == first + 1 and not places.has_hot_keys:
                self._readers[known] = (owner.partition,)
            else:
                readers = places.readers(owner.partition, first, end, streams)
                self._readers[known] = tuple(sorted(readers))
        return self._readers[known]

    def keeper(self, slice_: Slice) -> int | None:
        """The partition that merges a slice, one of its readers; None if it is left as it is."""
        readers = self.readers(slice_)
        if slice_.owner.partition in readers:
            return slice_.owner.partition
        # Payload cannot be divided: in a slice of another partition, its other readers would not find it.
        if not readers or (slice_.owner.kind == "payload" and len(readers) > 1):
            return None
        return readers[0]

    def may_merge(self, slice_: Slice) -> bool:
        """Whether rows of a slice may be placed anew: not if hot keys in it have other places now."""
        places = self._of(slice_)
        if slice_.owner.kind == "payload" or not places.has_hot_keys:
            return True
        return places.are_same(self._number[slice_.placed])

    def sources(self, partition: int, key: Key, site: Site = "") -> tuple[int, ...]:
        """The partitions in whose slices rows of a partition may be."""
        if self._are_fixed:
            return (partition,)
        if (partition, key, site) not in self._sources:
            sources = self.of_key(key, site).sources(partition)
            # Of deferred results, which have no key.
            sources.update(range(partition, max(t.partitions for t in self.tables), self.partitions))
            self._sources[partition, key, site] = tuple(sorted(sources))
        return self._sources[partition, key, site]

    def hidden(self, slice_: Slice, partition: int) -> Hashes:
        """The hot keys of a partition whose rows in a slice are those of others."""
        if self._are_fixed:
            return _NONE
        places, owner = self._of(slice_), slice_.owner
        if not places.has_hot_keys:
            return _NONE
        return places.hidden(partition, owner.partition, self._number[slice_.placed], owner.state.streams)

    def own_ranges(self, slice_: Slice, partition: int) -> Ranges | None:
        """The ranges of an index slice that a partition has now; None if it has all of it."""
        places, owner = self._of(slice_), slice_.owner
        if not places.has_hot_keys and self.readers(slice_) == (partition,):
            return None
        return places.ranges(partition, owner.partition, self._number[slice_.placed], owner.state.streams)

    def after(self, slices: Iterable[Slice]) -> tuple[RoutingTable, ...]:
        """The tables that are still needed for some slices, and the current one."""
        needed = {len(self.tables) - 1}
        for first, end in {self._tables_of(slice_) for slice_ in slices}:
            needed.update(range(first, end))
        return tuple(self.tables[number] for number in sorted(needed))

    def of_key(self, key: Key, site: Site = "") -> KeyPlaces:
        """The places of a key; asked for each slice in each partition."""
        if (key, site) not in self._by_key:
            self._by_key[key, site] = self._places_of(key_name(key, site), site)
        return self._by_key[key, site]

    def _places_of(self, name: KeyName, site: Site) -> KeyPlaces:
        # All keys of which no group has been moved, and none is spread, have the same.
        name = name if any(name in table.moved or name in table.spread for table in self.tables) else ""
        if (name, site) not in self._of_key:
            self._of_key[name, site] = KeyPlaces(
                [self._owners_in(table, name, site) for table in self.tables],
                [_spread_in(table, name) for table in self.tables],
            )
        return self._of_key[name, site]

    def _of(self, slice_: Slice) -> KeyPlaces:
        return self.of_key(slice_.owner.key, slice_.owner.state.site)

    def _owners_in(self, table: RoutingTable, name: KeyName, site: Site) -> Owners:
        if site:
            owned = self.partitions_at[site]
            owners = divided(len(owned), self.groups) + owned[0]
        else:
            owners = divided(table.partitions, self.groups, table.shares)
        for group, partition in table.moved.get(name, {}).items():
            owners[group] = partition
        return owners

    def _tables_of(self, slice_: Slice) -> tuple[int, int]:
        """The range of tables by which the rows of a slice were placed.

        Rows of index slices are placed anew when they are merged, segments of payload never.
        """
        last = self._number[slice_.placed]
        if slice_.owner.is_rerouted_on_merge:
            return last, last + 1
        first = max((n for since, n in self._number.items() if since <= slice_.first_epoch), default=0)
        return min(first, last), last + 1

    @cached_property
    def _are_fixed(self) -> bool:
        """Whether the rows of every group have been in one partition all along; asked for each slice."""
        return len(self.tables) == 1 and not self.tables[0].spread

    @cached_property
    def _number(self) -> dict[int, int]:
        return {table.since: number for number, table in enumerate(self.tables)}

    @cached_property
    def _by_key(self) -> dict[tuple[Key, Site], KeyPlaces]:
        return {}

    @cached_property
    def _of_key(self) -> dict[tuple[KeyName, Site], KeyPlaces]:
        return {}

    @cached_property
    def _sources(self) -> dict[tuple[int, Key, Site], tuple[int, ...]]:
        return {}

    @cached_property
    def _readers(self) -> dict[tuple[object, ...], tuple[int, ...]]:
        return {}


_NONE: Hashes = np.empty(0, np.uint64)


def _spread_in(table: RoutingTable, name: KeyName) -> dict[int, Place]:
    return {hot: Place(s.partitions, s.stream) for hot, s in table.spread.get(name, {}).items()}
