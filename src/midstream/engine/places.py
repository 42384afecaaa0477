"""Places: which engine partition has which partition group, and where that group's rows were stored before.

When the number of partitions changes, groups get other partitions, and nothing else happens: rows from before
stay in the slices of the partitions that had their groups then. A slice is sorted by hash, and a group is a
range of hashes, so several partitions can search one slice, each for the rows of its own groups:

    table        since epoch 0              since epoch 7
    partitions   0            1             0      1      2      3
    groups       0 1 2 3      4 5 6 7       0 1    2 3    4 5    6 7
    slices       [0-3]        [0-3]         new rows
                   read by 0, 1  by 2, 3

Every row is in one slice of each arrangement. A partition that searches a slice, for rows of its own groups,
finds only rows of these. One that *scans* a slice must leave out what others have.

Each slice has one *keeper*, the partition that merges it. Merged rows go into slices of the partitions that
have their groups now. So moved rows are adopted little by little, by the merging that happens anyway.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from midstream.engine.routing import Routing, even_routing
from midstream.state.routing_table import RoutingTable
from midstream.state.slices import Slice

Groups = npt.NDArray[np.bool_]
"""For each group, whether it is meant."""


@dataclass(frozen=True)
class Places:
    """The routing of now, and those by which stored rows were placed."""

    groups: int
    """How many groups there are."""
    tables: tuple[RoutingTable, ...]
    """Oldest first; the last is that of now."""

    @property
    def partitions(self) -> int:
        """The number of engine partitions."""
        return self.tables[-1].partitions

    @property
    def since(self) -> int:
        """The epoch since which groups are where they are."""
        return self.tables[-1].since

    @cached_property
    def routing(self) -> Routing:
        """Which partition has which group."""
        return even_routing(self.partitions, self.groups)

    @property
    def home(self) -> int:
        """The partition with all rows of nodes that no key places: these have the first hash."""
        return self.routing.partitions[0]

    def rescaled(self, epoch: int, partitions: int) -> Places:
        """The places from an epoch on, with another number of partitions."""
        # Before the first epoch there may be a table of the same epoch, by which nothing was placed.
        before = (table for table in self.tables if table.since < epoch)
        return Places(self.groups, (*before, RoutingTable(epoch, partitions)))

    def __reduce__(self) -> tuple[type[Places], tuple[int, tuple[RoutingTable, ...]]]:
        """Tasks get no more than what the rest follows from."""
        return Places, (self.groups, self.tables)

    def groups_of(self, partition: int) -> list[int]:
        """The groups that a partition has now."""
        return np.flatnonzero(self._owners[-1] == partition).tolist()

    def ever_held(self, partition: int) -> Groups:
        """The groups that a partition has, or had when rows were stored that are still there."""
        return self._held(partition, 0, len(self.tables))

    def held(self, slice_: Slice) -> Groups:
        """The groups whose rows a slice may have: those that its partition had."""
        return self._held(slice_.owner.partition, *self._tables_of(slice_))

    def readers(self, slice_: Slice) -> tuple[int, ...]:
        """The partitions that have rows of a slice now, in ascending order."""
        owner = slice_.owner
        if owner.kind == "deferred":
            # Results belong to no group.
            return (owner.partition % self.partitions,)
        first, end = self._tables_of(slice_)
        key = owner.partition, first, end
        if key not in self._readers:
            if end == len(self.tables) == first + 1:
                self._readers[key] = (owner.partition,)
            else:
                now = self._owners[-1][self._held(*key)]
                self._readers[key] = tuple(np.unique(now).tolist())
        return self._readers[key]

    def keeper(self, slice_: Slice) -> int | None:
        """The partition that merges a slice, one of its readers; None if it is left as it is."""
        readers = self.readers(slice_)
        if slice_.owner.partition in readers:
            return slice_.owner.partition
        # Payload cannot be divided: in a slice of another partition, its other readers would not find it.
        return None if slice_.owner.kind == "payload" and len(readers) > 1 else readers[0]

    def sources(self, partition: int) -> tuple[int, ...]:
        """The partitions in whose slices rows of a partition may be."""
        if len(self.tables) == 1:
            return (partition,)
        if partition not in self._sources:
            mine = self._owners[-1] == partition
            former = {partition}.union(*(np.unique(owners[mine]).tolist() for owners in self._owners))
            former.update(range(partition, max(t.partitions for t in self.tables), self.partitions))
            self._sources[partition] = tuple(sorted(former))
        return self._sources[partition]

    def after(self, slices: Iterable[Slice]) -> tuple[RoutingTable, ...]:
        """The tables that are still needed for some slices, and that of now."""
        needed = {len(self.tables) - 1}
        for first, end in {self._tables_of(slice_) for slice_ in slices}:
            needed.update(range(first, end))
        return tuple(self.tables[number] for number in sorted(needed))

    def _held(self, partition: int, first: int, end: int) -> Groups:
        held: Groups = np.logical_or.reduce([owners == partition for owners in self._owners[first:end]])
        return held

    def _tables_of(self, slice_: Slice) -> tuple[int, int]:
        """The range of tables by which the rows of a slice were placed.

        Rows of index slices are placed anew when they are merged, segments of payload never.
        """
        last = self._number[slice_.placed]
        if slice_.owner.is_placed_anew:
            return last, last + 1
        first = max((n for since, n in self._number.items() if since <= slice_.first_epoch), default=0)
        return min(first, last), last + 1

    @cached_property
    def _owners(self) -> list[npt.NDArray[np.int64]]:
        """For each table, the partition of each group."""
        return [np.array(even_routing(t.partitions, self.groups).partitions) for t in self.tables]

    @cached_property
    def _number(self) -> dict[int, int]:
        return {table.since: number for number, table in enumerate(self.tables)}

    @cached_property
    def _sources(self) -> dict[int, tuple[int, ...]]:
        return {}

    @cached_property
    def _readers(self) -> dict[tuple[int, int, int], tuple[int, ...]]:
        return {}
