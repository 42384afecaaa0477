"""Probing: find the rows of a sorted state that have the same hashes as probing rows, the *needles*.

Both sides are sorted, so binary searches for one needle after the other touch only the parts of the state
near them: the cost depends on the needles, not on the state, and only those pages of a memory-mapped state
are read. For hot keys, a second search by time leaves the rows that may be within the window
(``engine/hot_keys.py``).
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from midstream.engine import hot_keys
from midstream.engine.hot_keys import Positions
from midstream.engine.index_rows import IndexRows
from midstream.query.window import Windows

# 2**21 candidate pairs and their gathered columns take about 100 MB. A hot key with a wide window may have
# any number of candidates; only those that pass the checks are in memory all at once.
MAX_CANDIDATES_AT_ONCE = 1 << 21


def candidate_pairs(
    rows: IndexRows, run: IndexRows, windows: Windows
) -> Iterator[tuple[Positions, Positions]]:
    """Pairs of positions with equal hashes, in the order of the needles, in portions of bounded size.

    They include all pairs within the windows, and for hot keys few others.
    """
    needles, state = rows.hashes, run.hashes
    if len(state) == 0:
        return
    low = state.searchsorted(needles, side="left")
    # In a selective join most needles have no match; only the others need the end of their range.
    matched = np.flatnonzero(state.take(low, mode="clip") == needles)
    if len(matched) == 0:
        return
    low = low[matched]
    counts = state.searchsorted(needles[matched], side="right") - low
    if counts.max() >= hot_keys.HOT_KEY_ROWS:
        matched, low, counts = _narrow_hot_keys(rows, run, windows, (matched, low, counts))
    ends = np.cumsum(counts)
    start = 0
    while start < len(matched):
        before = ends[start - 1] if start else 0
        stop = int(np.searchsorted(ends, before + MAX_CANDIDATES_AT_ONCE, side="right"))
        if stop == start:
            # A single needle has more candidates than one portion may have.
            yield from _portions_of_one(int(matched[start]), int(low[start]), int(counts[start]))
            start += 1
            continue
        portion = slice(start, stop)
        yield _expand_pairs(matched[portion], low[portion], counts[portion])
        start = stop


def _narrow_hot_keys(
    rows: IndexRows, run: IndexRows, windows: Windows, ranges: tuple[Positions, Positions, Positions]
) -> tuple[Positions, Positions, Positions]:
    """Needles and their ranges of rows, those of hot keys narrowed to rows that may be within the windows."""
    matched, low, counts = ranges
    hot = np.flatnonzero(counts >= hot_keys.HOT_KEY_ROWS)
    stream = run.time_order_stream
    times = hot_keys.time_range(rows.times, matched[hot], stream, windows)
    if times is None:
        return ranges
    start, size = low.copy(), counts.copy()
    start[hot], size[hot] = hot_keys.narrow_by_time(run.times[stream], low[hot], counts[hot], *times)
    nonempty = size > 0
    return matched[nonempty], start[nonempty], size[nonempty]


def _expand_pairs(needles: Positions, low: Positions, counts: Positions) -> tuple[Positions, Positions]:
    total = int(counts.sum())
    if total == len(counts):
        return needles, low
    return np.repeat(needles, counts), hot_keys.expand_ranges(low, counts)


def _portions_of_one(needle: int, low: int, count: int) -> Iterator[tuple[Positions, Positions]]:
    for start in range(low, low + count, MAX_CANDIDATES_AT_ONCE):
        size = min(MAX_CANDIDATES_AT_ONCE, low + count - start)
        yield np.full(size, needle, np.intp), np.arange(start, start + size)
