"""Which parts of a plan key classes connect, and the connected sets of parts, each found once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from midstream.adapt.stream_sets import StreamMask, StreamSets

PartMask = int
"""A set of parts: a bit for each, by its position in the graph."""


class JoinGraph:
    """Parts, which are disjoint sets of streams, with an edge where two have a key class in common."""

    def __init__(self, sets: StreamSets, parts: Sequence[StreamMask]) -> None:
        """The order of the parts matters if connected sets are to grow by their first neighbours only."""
        self.parts = parts
        self.all_parts: PartMask = (1 << len(parts)) - 1
        classes = [sets.classes[part] for part in parts]
        self._neighbours = [
            sum(1 << j for j, other in enumerate(classes) if other & own) & ~(1 << i)
            for i, own in enumerate(classes)
        ]
        self.is_connected = self._is_connected()
        """Whether key classes lead from every part to every other."""
        if not self.is_connected:
            # The query forces a cross product; which one is for the costs to say.
            self._neighbours = [self.all_parts ^ 1 << i for i in range(len(parts))]

    def streams_of(self, members: PartMask) -> StreamMask:
        """The streams of some parts."""
        return sum(part for i, part in enumerate(self.parts) if members >> i & 1)

    def connected_sets(self, most_parts: int, most_neighbours: int) -> Iterator[PartMask]:
        """The connected sets of up to so many parts; each grows by the first so many of its neighbours.

        A set grows from its first part, by parts after it only, and never by a neighbour that was left out
        when the set was smaller: so no set is found twice (Moerkotte and Neumann, 2006).
        """
        for first in range(len(self.parts)):
            part = 1 << first
            yield part
            yield from self._grown(part, (part << 1) - 1, most_parts - 1, most_neighbours)

    def _grown(
        self, members: PartMask, excluded: PartMask, more_parts: int, most_neighbours: int
    ) -> Iterator[PartMask]:
        if not more_parts:
            return
        around = self._around(members) & ~excluded
        tried = _first_bits(around, most_neighbours)
        # Of a large clique there are too many sets to keep, and whoever asks may stop at any.
        yield from (members | chosen for chosen in _subsets(tried, more_parts))
        for chosen in _subsets(tried, more_parts):
            more = more_parts - chosen.bit_count()
            yield from self._grown(members | chosen, excluded | around, more, most_neighbours)

    def _around(self, members: PartMask) -> PartMask:
        around = 0
        for i, neighbours in enumerate(self._neighbours):
            if members >> i & 1:
                around |= neighbours
        return around

    def _is_connected(self) -> bool:
        reached = self.all_parts & 1
        while (extended := reached | self._around(reached)) != reached:
            reached = extended
        return reached == self.all_parts


def _first_bits(mask: PartMask, count: int) -> PartMask:
    first = 0
    for _ in range(min(count, mask.bit_count())):
        lowest = mask & -mask
        first |= lowest
        mask ^= lowest
    return first


def _subsets(mask: PartMask, most: int) -> Iterator[PartMask]:
    """Those of up to so many parts, without the empty one."""
    subset = mask
    while subset:
        if subset.bit_count() <= most:
            yield subset
        subset = (subset - 1) & mask
