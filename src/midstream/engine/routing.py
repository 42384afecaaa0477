"""Routing: which engine partition has which partition group, and splitting rows accordingly."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from midstream.engine.arrays import as_column
from midstream.engine.hashing import Hashes, group_of


@dataclass(frozen=True)
class Routing:
    """Which engine partition has which partition group."""

    partitions: tuple[int, ...]
    """The engine partition of each group."""

    def targets(self, hashes: Hashes) -> npt.NDArray[np.int64]:
        """The engine partition of each hash."""
        table = np.array(self.partitions, np.int64)
        return table[group_of(hashes, len(self.partitions))]


@lru_cache(maxsize=64)
def even_routing(partitions: int, groups: int) -> Routing:
    """The routing that gives every partition the same number of groups, neighbours together."""
    return Routing(tuple(group * partitions // groups for group in range(groups)))


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
