"""Probing: find, for rows sorted by hash, the rows of a sorted state with the same hash.

Both sides are sorted, so a binary search whose start moves along with the needles touches only the parts
of the state near them: the cost follows the needles, not the state, and of a memory-mapped state only
those pages are ever read. Where many rows of the state have the hash, a second search by their times leaves
those that may be near enough (``engine/hot.py``): the cost follows what is found, not how often a key comes.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from midstream.engine import hot_keys
from midstream.engine.hot_keys import Positions
from midstream.engine.index_rows import IndexRows
from midstream.query.window import Windows

# Candidate pairs held at a time: 2**21 pairs and their gathered columns are some 100 MB. A hot key with a
# wide window may have any number of candidates; only those that pass need memory all at once.
CANDIDATES_AT_ONCE = 1 << 21


def matches(rows: IndexRows, run: IndexRows, windows: Windows) -> Iterator[tuple[Positions, Positions]]:
    """Pairs of positions with equal hashes, in the order of the needles, in bounded portions.

    All pairs within the windows are among them, and of hot keys few others.
    """
    needles, state = rows.hashes, run.hashes
    if len(state) == 0:
        return
    low = np.searchsorted(state, needles, side="left")
    # Most needles of a selective join find nothing; only the others need the end of their range.
    hit = np.flatnonzero(state[np.minimum(low, len(state) - 1)] == needles)
    if len(hit) == 0:
        return
    low = low[hit]
    counts = np.searchsorted(state, needles[hit], side="right") - low
    if counts.max() >= hot_keys.HOT_KEY_ROWS:
        hit, low, counts = _narrow(rows, run, windows, (hit, low, counts))
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


def _narrow(
    rows: IndexRows, run: IndexRows, windows: Windows, found: tuple[Positions, Positions, Positions]
) -> tuple[Positions, Positions, Positions]:
    """Needles and what they have found, where it is much only what may be near enough."""
    hit, low, counts = found
    many = np.flatnonzero(counts >= hot_keys.HOT_KEY_ROWS)
    near = hot_keys.time_range(rows.times, hit[many], run.first, windows)
    if near is None:
        return found
    begin, size = low.copy(), counts.copy()
    begin[many], size[many] = hot_keys.narrow_by_time(run.times[run.first], low[many], counts[many], *near)
    some = size > 0
    return hit[some], begin[some], size[some]


def _expand(needles: Positions, low: Positions, counts: Positions) -> tuple[Positions, Positions]:
    total = int(counts.sum())
    if total == len(counts):
        return needles, low
    return np.repeat(needles, counts), hot_keys.expand_ranges(low, counts)


def _walk(needle: int, low: int, count: int) -> Iterator[tuple[Positions, Positions]]:
    for start in range(low, low + count, CANDIDATES_AT_ONCE):
        size = min(CANDIDATES_AT_ONCE, low + count - start)
        yield np.full(size, needle, np.intp), np.arange(start, start + size)
