"""Probing: find, for rows sorted by hash, the rows of a sorted state with the same hash.

Both sides are sorted, so a binary search whose start moves along with the needles touches only the parts
of the state near them: the cost follows the needles, not the state, and of a memory-mapped state only
those pages are ever read.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from midstream.engine.hashing import Hashes

Positions = npt.NDArray[np.intp]

# Candidate pairs held at a time: 2**21 pairs and their gathered columns are some 100 MB. A hot key or a
# cross join may have any number of candidates; only those that pass need memory all at once.
CANDIDATES_AT_ONCE = 1 << 21


def matches(needles: Hashes, state: Hashes) -> Iterator[tuple[Positions, Positions]]:
    """Pairs of positions with equal hashes, in the order of the needles, in bounded portions."""
    if len(state) == 0:
        return
    low = np.searchsorted(state, needles, side="left")
    # Most needles of a selective join find nothing; only the others need the end of their range.
    hit = np.flatnonzero(state[np.minimum(low, len(state) - 1)] == needles)
    if len(hit) == 0:
        return
    low = low[hit]
    counts = np.searchsorted(state, needles[hit], side="right") - low
    ends = np.cumsum(counts)
    start = 0
    while start < len(hit):
        before = ends[start - 1] if start else 0
        stop = int(np.searchsorted(ends, before + CANDIDATES_AT_ONCE, side="right"))
        if stop == start:
            # One needle alone has more candidates than fit: walk through them.
            yield from _walk(int(hit[start]), int(low[start]), int(counts[start]))
            start += 1
            continue
        part = slice(start, stop)
        yield _expand(hit[part], low[part], counts[part])
        start = stop


def _expand(needles: Positions, low: Positions, counts: Positions) -> tuple[Positions, Positions]:
    total = int(counts.sum())
    if total == len(counts):
        return needles, low
    first = np.cumsum(counts) - counts
    return np.repeat(needles, counts), np.arange(total) + np.repeat(low - first, counts)


def _walk(needle: int, low: int, count: int) -> Iterator[tuple[Positions, Positions]]:
    for start in range(low, low + count, CANDIDATES_AT_ONCE):
        size = min(CANDIDATES_AT_ONCE, low + count - start)
        yield np.full(size, needle, np.intp), np.arange(start, start + size)
