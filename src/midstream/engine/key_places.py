"""The places of one key: which partitions have its groups and hot keys by each of several routings.

Nothing is moved when places change. Who reads rows of earlier times follows from two places alone, that by
which they were stored and the current one. While several partitions share a hot key, rows of a state are
*dealt* out among them if the state has the spread stream, so that each is in one partition, or else
*copied* to all:

    stored     now        a row is read by
    any        copied     everybody: of dealt rows every one, of copied ones the own copy, or else the first
    dealt      dealt      the partition that stored it, or else the first of today's
    copied     dealt      the first of today's, from the first at that time

What only one partition has counts as copied. So a result, which has one row of the spread stream, is made in
exactly one partition.

Which copy is that of the first partition has to be the same for all copies of a row. So copies are not placed
anew when slices are merged: slices merge only with those by whose routing hot keys have the same places.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property

import numpy as np
import numpy.typing as npt

from midstream.engine.hashing import Hashes, group_bounds, group_of
from midstream.engine.routing import Place, Routing

Groups = npt.NDArray[np.bool_]
"""For each group, whether it is meant."""
Owners = npt.NDArray[np.int64]
"""For each group, the partition that has it."""

Ranges = tuple[Hashes, Hashes]
"""The first and the last hashes of ranges of rows."""


class KeyPlaces:
    """The places of a key by several routings, the last of which is the current one."""

    def __init__(self, owners: Sequence[Owners], spread: Sequence[Mapping[int, Place]]) -> None:
        """For each routing, the partition of each group, and the hot keys that partitions share."""
        self._owners = owners
        self._spread = spread
        self._groups = len(owners[-1])
        self._known: dict[object, Ranges] = {}

    @cached_property
    def routing(self) -> Routing:
        """The current routing."""
        return Routing(tuple(self._owners[-1].tolist()), tuple(sorted(self._spread[-1].items())))

    def holders(self, group: int) -> set[int]:
        """The partitions that have rows of a group now."""
        shared = (place.partitions for hot, place in self._spread[-1].items() if self._group(hot) == group)
        return {int(self._owners[-1][group])}.union(*shared)

    def groups_of(self, partition: int) -> list[int]:
        """The groups of which a partition has rows now."""
        return np.flatnonzero(self.held(partition, len(self._owners) - 1, len(self._owners))).tolist()

    def held(self, partition: int, first: int, end: int) -> Groups:
        """The groups of which a partition had rows by some of the routings."""
        held: Groups = np.logical_or.reduce([owners == partition for owners in self._owners[first:end]])
        for spread in self._spread[first:end]:
            for hot, place in spread.items():
                if partition in place.partitions:
                    held[self._group(hot)] = True
        return held

    def readers(self, partition: int, first: int, end: int, streams: Sequence[str] | None) -> set[int]:
        """The partitions that have rows now which a partition stored by some of the routings.

        ``streams`` are those of the rows; None for all rows, whoever has copies of them.
        """
        owned = np.logical_or.reduce([owners == partition for owners in self._owners[first:end]])
        readers = set(np.unique(self._owners[-1][owned]).tolist())
        for hot in self._hot:
            now = self._now(hot)
            for table in range(first, end):
                then = self._place(hot, table)
                if partition in then.partitions:
                    readers.update(
                        reader
                        for reader in now.partitions
                        if streams is None or _sees(reader, partition, then, now, streams)
                    )
        return readers

    def sources(self, partition: int) -> set[int]:
        """The partitions that may have stored rows which a partition has now."""
        mine = self._owners[-1] == partition
        sources = {partition}.union(*(np.unique(owners[mine]).tolist() for owners in self._owners))
        for hot in self._hot:
            if partition in self._now(hot).partitions:
                sources.update(*(self._place(hot, table).partitions for table in range(len(self._owners))))
        return sources

    def hidden(self, reader: int, partition: int, table: int, streams: tuple[str, ...]) -> Hashes:
        """The hot keys that a partition has now, but of which it does not have the rows in some slice.

        The slice has rows of ``streams``, placed by one routing.
        """
        return np.array(
            [
                hot
                for hot in self._hot
                if reader in (now := self._now(hot)).partitions
                and partition in (then := self._place(hot, table)).partitions
                and not _sees(reader, partition, then, now, streams)
            ],
            np.uint64,
        )

    def ranges(self, reader: int, partition: int, table: int, streams: tuple[str, ...]) -> Ranges:
        """The ranges of a slice, of rows of ``streams`` placed by one routing, that a partition has now."""
        known = reader, partition, table, streams
        if known not in self._known:
            self._known[known] = self._ranges(*known)
        return self._known[known]

    def are_same(self, table: int) -> bool:
        """Whether all hot keys have by a routing the places that they have now."""
        return all(self._place(hot, table) == self._now(hot) for hot in self._hot)

    @property
    def has_hot_keys(self) -> bool:
        """Whether partitions share, or shared, a hot key."""
        return bool(self._hot)

    def _ranges(self, reader: int, partition: int, table: int, streams: tuple[str, ...]) -> Ranges:
        groups = np.flatnonzero(self._owners[-1] == reader).tolist()
        first, last = group_bounds(groups, self._groups)
        if not self._hot:
            return first, last
        ranges = list(zip(first.tolist(), last.tolist(), strict=True))
        for hot in self._hot:
            ranges = [part for range_ in ranges for part in _without(range_, hot)]
            now, then = self._now(hot), self._place(hot, table)
            if reader in now.partitions and partition in then.partitions:
                ranges += [(hot, hot)] if _sees(reader, partition, then, now, streams) else []
        ordered = np.array(sorted(ranges), np.uint64).reshape(-1, 2)
        return ordered[:, 0], ordered[:, 1]

    @cached_property
    def _hot(self) -> list[int]:
        """The hot keys that partitions share by any routing."""
        return sorted({hot for spread in self._spread for hot in spread})

    def _group(self, hot: int) -> int:
        return int(group_of(np.array([hot], np.uint64), self._groups)[0])

    def _now(self, hot: int) -> Place:
        return self._place(hot, len(self._owners) - 1)

    def _place(self, hot: int, table: int) -> Place:
        owner = int(self._owners[table][self._group(hot)])
        return self._spread[table].get(hot, Place((owner,)))


def _sees(reader: int, partition: int, then: Place, now: Place, streams: Sequence[str]) -> bool:
    """Whether a partition that has a key now reads the rows of it that a partition had then."""
    first_then, first_now = then.partitions[0], now.partitions[0]
    if not now.deals(streams):
        return then.deals(streams) or partition == (reader if reader in then.partitions else first_then)
    if then.deals(streams):
        return reader == (partition if partition in now.partitions else first_now)
    return reader == first_now and partition == first_then


def _without(range_: tuple[int, int], hot: int) -> list[tuple[int, int]]:
    """A range of hashes without one of them."""
    first, last = range_
    if not first <= hot <= last:
        return [range_]
    return [(a, b) for a, b in ((first, hot - 1), (hot + 1, last)) if a <= b]
