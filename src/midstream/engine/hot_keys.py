"""Hot keys: where many rows have one hash, they are in order of time, and found by it.

Rows are sorted by hash. Without more, each row with a hot key meets all rows with that key, however narrow
the window: n rows on either side are n² candidates. So rows with one hash, if there are at least ``HOT`` of
them, are also in the order of one of their times, and of a range of such rows only that part is looked at
whose times may be near enough. Smaller groups stay in order of arrival: to look at all of their rows costs
no more than to search among them, and ordinary data pays one comparison of its hashes, no more.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from midstream.engine.hashing import Hashes
from midstream.engine.ordering import stable_order
from midstream.query.window import Windows

Integers = npt.NDArray[np.int64]
Positions = npt.NDArray[np.intp]

# Part of the checkpoint's format: slices that say they are in order of time are so from this size on. A
# smaller number would expect more of them than they promise.
HOT_KEY_ROWS = 32

_EARLIEST, _LATEST = -(2**63), 2**63 - 1


def time_order_moves(hashes: Hashes, times: Integers) -> tuple[Positions, Positions] | None:
    """How large groups of sorted rows come into order of time: to which positions rows move, and from which.

    None if they are in order. Rows only change places with others of their hash.
    """
    # Only in a group of at least so many rows does the same hash come again so many rows later.
    again = hashes[: max(0, len(hashes) - HOT_KEY_ROWS + 1)] == hashes[HOT_KEY_ROWS - 1 :]
    if not again.any():
        return None
    found = hashes[: len(again)][again]
    hot = found[np.flatnonzero(np.diff(found, prepend=~found[:1]))]
    low = np.searchsorted(hashes, hot, side="left")
    counts = np.searchsorted(hashes, hot, side="right") - low
    to = expand_ranges(low, counts)
    groups, ordered = np.repeat(np.arange(len(hot)), counts), times[to]
    # Often they are in order: rows arrive by time, and later epochs bring later ones.
    if not ((ordered[1:] < ordered[:-1]) & (groups[1:] == groups[:-1])).any():
        return None
    by_time = stable_order(ordered)
    return to, to[by_time[stable_order(groups[by_time])]]


def expand_ranges(low: Positions, counts: Positions) -> Positions:
    """All positions of ranges, one range after the other."""
    first = np.cumsum(counts) - counts
    positions: Positions = np.arange(int(counts.sum())) + np.repeat(low - first, counts)
    return positions


def time_range(
    times: Mapping[str, Integers], needles: Positions, stream: str, windows: Windows
) -> tuple[Integers, Integers] | None:
    """The first and the last time that a row of ``stream`` may have to be near each needle.

    None if it may have any. The first may be after the last: then no row is near.
    """
    first, last = None, None
    for name, column in times.items():
        bound = windows.bound(name, stream)
        if bound is None or bound > _LATEST:
            continue
        mine = column[needles]
        # Cut off before the bound is added, so that neither end leaves 64 bits.
        low = np.maximum(mine, _EARLIEST + bound) - bound
        high = np.minimum(mine, _LATEST - bound) + bound
        first = low if first is None else np.maximum(first, low)
        last = high if last is None else np.minimum(last, high)
    return None if first is None or last is None else (first, last)


def narrow_by_time(
    times: Integers, low: Positions, counts: Positions, first: Integers, last: Integers
) -> tuple[Positions, Positions]:
    """Of ranges in order of time, the parts from ``first`` to ``last``: where they begin, and how long."""
    high = low + counts
    cut = np.flatnonzero((times[low] < first) | (times[high - 1] > last))
    begin, end = low.copy(), high.copy()
    begin[cut] = _search(times, low[cut], high[cut], first[cut], after=False)
    end[cut] = _search(times, begin[cut], high[cut], last[cut], after=True)
    return begin, end - begin


def _search(times: Integers, low: Positions, high: Positions, wanted: Integers, *, after: bool) -> Positions:
    """In each range, the first position whose time is at least, or is ``after``, the wanted one."""
    before = np.less_equal if after else np.less
    steps = int((high - low).max(initial=0)).bit_length()
    for _ in range(steps):
        middle = (low + high) >> 1
        # A range that is used up may lie behind the last row.
        here = times[np.minimum(middle, len(times) - 1)]
        up = before(here, wanted) & (low < high)
        low, high = np.where(up, middle + 1, low), np.where(up, high, middle)
    return low
