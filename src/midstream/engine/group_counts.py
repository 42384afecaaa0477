"""Counts by partition group: how many rows of a slice, or of a node's output, are in each group."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import numpy.typing as npt

from midstream.engine.hashing import Hashes, group_bounds, group_of
from midstream.engine.references import Integers

RESULTS = -1
"""In place of the receiver's group, if rows are results."""

_COUNT = np.dtype("<i4")


def count_groups(hashes: Hashes, groups: int) -> bytes:
    """The groups that sorted rows are in, and how many in each: pairs of 4-byte numbers, little-endian."""
    rows = np.diff(np.searchsorted(hashes, _first_hashes(groups)), append=len(hashes))
    present = np.flatnonzero(rows)
    return np.stack([present, rows[present]], axis=1).astype(_COUNT).tobytes()


@lru_cache(maxsize=8)
def _first_hashes(groups: int) -> Hashes:
    """The first hash of each group."""
    return group_bounds(range(groups), groups)[0]


def read_groups(counts: bytes, groups: int) -> npt.NDArray[np.float64]:
    """The number of rows in each group."""
    present, rows = np.frombuffer(counts, _COUNT).reshape(-1, 2).T
    by_group = np.zeros(groups)
    by_group[present] = rows
    return by_group


def count_flows(hashes: Hashes, receivers: Hashes | None, groups: int, scale: int) -> bytes:
    """How many rows come from each group and go to each group of the receiver, or are results: triples."""
    sources = group_of(hashes, groups)
    targets = np.full_like(sources, RESULTS) if receivers is None else group_of(receivers, groups)
    # A pair as one number, since sorting by two is several times as slow.
    pairs, rows = np.unique(sources * (groups + 1) + targets - RESULTS, return_counts=True)
    sources, targets = np.divmod(pairs, groups + 1)
    return np.stack([sources, targets + RESULTS, scale * rows], axis=1).astype(_COUNT).tobytes()


def read_flows(counts: bytes) -> tuple[Integers, Integers, npt.NDArray[np.float64]]:
    """The groups that rows come from and go to, and their numbers; a pair may be there several times."""
    sources, targets, rows = np.frombuffer(counts, _COUNT).reshape(-1, 3).T
    return sources.astype(np.int64), targets.astype(np.int64), rows.astype(np.float64)
