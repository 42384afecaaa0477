"""Routing: which engine partition has which partition group, and splitting rows accordingly."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from midstream.engine.arrays import as_column
from midstream.engine.hashing import Hashes, group_of


class Place(NamedTuple):
    """The partitions that have the rows of a key."""

    partitions: tuple[int, ...]
    stream: str | None = None
    """The stream whose rows are dealt out among several partitions; each gets the rows of all others."""

    def deals(self, streams: Collection[str]) -> bool:
        """Whether rows of some streams are dealt out, so that each is in one partition only of several."""
        return self.stream is not None and self.stream in streams


class Part(NamedTuple):
    """Rows on their way to a partition."""

    partition: int
    table: pa.Table
    is_copy: bool = False
    """Whether another partition gets the same rows, and counts them."""


@dataclass(frozen=True)
class Routing:
    """Which engine partition has which partition group."""

    partitions: tuple[int, ...]
    """The engine partition of each group."""
    spread: tuple[tuple[int, Place], ...] = ()
    """The hashes of hot keys that several partitions share, in ascending order."""

    def targets(self, hashes: Hashes) -> npt.NDArray[np.int64]:
        """The engine partition of each hash, of a hot key the first."""
        targets = np.array(self.partitions, np.int64)[group_of(hashes, len(self.partitions))]
        for hot, place in self.spread:
            targets[hashes == np.uint64(hot)] = place.partitions[0]
        return targets

    def split(self, table: pa.Table, hashes: Hashes, streams: Sequence[str]) -> Iterator[Part]:
        """Rows of some streams, by the partitions that get them."""
        targets = self.targets(hashes)
        copies: list[Part] = []
        for hot, place in self.spread:
            positions = np.flatnonzero(hashes == np.uint64(hot))
            if place.deals(streams):
                targets[positions] = np.resize(place.partitions, len(positions))
            elif len(positions):
                copied = table.take(as_column(positions))
                copies += [Part(partition, copied, is_copy=True) for partition in place.partitions[1:]]
        for target, part in split(table, targets):
            yield Part(target, part)
        yield from copies

    def count(self, hashes: Hashes, streams: Sequence[str], partition: int) -> int:
        """How many rows of some streams a partition counts; copies are counted by the first that has them."""
        copied = (
            hot
            for hot, place in self.spread
            if not place.deals(streams) and partition in place.partitions[1:]
        )
        return len(hashes) - sum(int(np.count_nonzero(hashes == np.uint64(hot))) for hot in copied)


def divided(partitions: int, groups: int, shares: Sequence[int] = ()) -> npt.NDArray[np.int64]:
    """The partition of each group, neighbours together: as many for each, or in proportion to shares."""
    until = np.cumsum(shares or (1,) * partitions)
    # A group goes where its first hash would, if the shares divided the hashes.
    first = np.arange(groups) * until[-1] // groups
    owners: npt.NDArray[np.int64] = np.searchsorted(until, first, side="right").astype(np.int64)
    return owners


def split(table: pa.Table, targets: npt.NDArray[np.int64]) -> Iterator[tuple[int, pa.Table]]:
    """The table in parts, one per target that has rows."""
    if table.num_rows == 0:
        return
    if (targets == targets[0]).all():
        yield int(targets[0]), table
        return
    # There are few targets, and NumPy sorts 16-bit integers by radix.
    order = np.argsort(targets.astype(np.uint16), kind="stable")
    ordered = targets[order]
    table = table.take(as_column(order))
    bounds = [0, *(np.flatnonzero(np.diff(ordered)) + 1).tolist(), len(ordered)]
    for start, stop in pairwise(bounds):
        yield int(ordered[start]), table.slice(start, stop - start)
