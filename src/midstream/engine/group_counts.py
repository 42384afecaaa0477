"""Counts by partition group: how many rows of a slice, or of a node's output, are in each group."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import numpy.typing as npt

from midstream.engine.hashing import Hashes, group_bounds, group_of
from midstream.engine.references import Integers
from midstream.state.slices import Counts

RESULTS = -1
"""In place of the receiver's group, if rows are results."""

GroupFigures = npt.NDArray[np.float64]
"""A figure for each group."""

_COUNT = np.dtype("<i4")
_SAMPLED_ROWS = 1024
"""So many rows that are sent together are looked at."""


def count_groups(hashes: Hashes, groups: int) -> Counts:
    """The groups that sorted rows are in, and how many in each: pairs of 4-byte numbers, little-endian."""
    present, rows = _rows_by_group(hashes, groups)
    return encode_group_counts(present, rows)


def _rows_by_group(hashes: Hashes, groups: int) -> tuple[Integers, Integers]:
    """The groups that sorted rows are in, and how many in each."""
    bounds = np.empty(groups + 1, np.int64)
    bounds[:-1] = np.searchsorted(hashes, _first_hashes(groups))
    bounds[-1] = len(hashes)
    rows = bounds[1:] - bounds[:-1]
    present = np.flatnonzero(rows)
    return present, rows[present]


@lru_cache(maxsize=8)
def _first_hashes(groups: int) -> Hashes:
    """The first hash of each group."""
    return group_bounds(range(groups), groups)[0]


def encode_group_counts(groups: Integers, rows: Integers) -> Counts:
    """Numbers of rows by group."""
    pairs = np.empty((len(groups), 2), _COUNT)
    pairs[:, 0], pairs[:, 1] = groups, rows
    return pairs.tobytes()


def decode_group_counts(counts: Counts) -> tuple[Integers, GroupFigures]:
    """Groups and their numbers of rows, also of several counts after one another."""
    groups, rows = np.frombuffer(counts, _COUNT).reshape(-1, 2).T
    return groups.astype(np.int64), rows.astype(np.float64)


def count_pairs(counts: Counts) -> int:
    """How many groups have rows."""
    return len(counts) // (2 * _COUNT.itemsize)


def read_groups(counts: Counts, groups: int) -> GroupFigures:
    """The number of rows in each group."""
    present, rows = decode_group_counts(counts)
    by_group = np.zeros(groups)
    by_group[present] = rows
    return by_group


def sums_by_group(groups_of: Integers, figures: GroupFigures, groups: int) -> GroupFigures:
    """For each group the sum of the figures that are of it."""
    sums: GroupFigures = np.bincount(groups_of, figures, minlength=groups).astype(np.float64, copy=False)
    return sums


def count_results(hashes: Hashes, groups: int) -> bytes:
    """How many of sorted rows, which are results, come from each group: triples as in :func:`count_flows`."""
    sources, rows = _rows_by_group(hashes, groups)
    return _write_flows(sources, RESULTS, rows)


def count_flows(hashes: Hashes, receivers: Hashes, groups: int) -> bytes:
    """How many rows come from each group and go to each group of the receiver, from a sample: triples."""
    stride = 1 + len(hashes) // _SAMPLED_ROWS
    sources, targets = group_of(hashes[::stride], groups), group_of(receivers[::stride], groups)
    # A pair as one number, since sorting by two is several times as slow.
    pairs, rows = np.unique(sources * groups + targets, return_counts=True)
    return _write_flows(*np.divmod(pairs, groups), stride * rows)


def _write_flows(sources: Integers, targets: Integers | int, rows: Integers) -> bytes:
    flows = np.empty((len(sources), 3), _COUNT)
    flows[:, 0], flows[:, 1], flows[:, 2] = sources, targets, rows
    return flows.tobytes()


def read_flows(counts: bytes) -> tuple[Integers, Integers, GroupFigures]:
    """The groups that rows come from and go to, and their numbers; a pair may be there several times."""
    sources, targets, rows = np.frombuffer(counts, _COUNT).reshape(-1, 3).T
    return sources.astype(np.int64), targets.astype(np.int64), rows.astype(np.float64)
