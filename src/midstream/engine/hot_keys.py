"""Hot keys: rows with a hash that many rows have are sorted by time, and searched by time.

Rows are sorted by hash. By that alone, each row with a hot key meets all rows with that key, however narrow
the window: n rows on either side are n² candidates. So if at least ``HOT_KEY_ROWS`` rows have one hash, they
are also sorted by one of their times, and a second search finds those that may be within the window. Rows
with other hashes stay in order of arrival: comparing all of them costs no more than searching. For data
without hot keys, the only cost is one comparison of the hashes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from midstream.engine.hashing import Hashes
from midstream.engine.ordering import stable_order
from midstream.query.window import Windows

Integers = npt.NDArray[np.int64]
Positions = npt.NDArray[np.intp]

# Part of the checkpoint format: slices that are marked as in order of time are so for this many rows with one
# hash, or more. With a smaller number, they would be searched by an order that they do not have.
HOT_KEY_ROWS = 32

_EARLIEST, _LATEST = -(2**63), 2**63 - 1


def time_order_permutation(hashes: Hashes, times: Integers) -> tuple[Positions, Positions] | None:
    """The moves that put rows with hot keys, sorted by hash, in order of time: target and source positions.

    None if they are in that order. A row only moves among the rows with its hash.
    """
    # A hash is hot if some row has it and the row HOT_KEY_ROWS - 1 positions further on has it too.
    is_hot = hashes[: max(0, len(hashes) - HOT_KEY_ROWS + 1)] == hashes[HOT_KEY_ROWS - 1 :]
    if not is_hot.any():
        return None
    repeated = hashes[: len(is_hot)][is_hot]
    hot_hashes = repeated[np.flatnonzero(np.diff(repeated, prepend=~repeated[:1]))]
    low = np.searchsorted(hashes, hot_hashes, side="left")
    counts = np.searchsorted(hashes, hot_hashes, side="right") - low
    targets = expand_ranges(low, counts)
    groups, hot_times = np.repeat(np.arange(len(hot_hashes)), counts), times[targets]
    # Often they are in order already: rows arrive by time, and later epochs bring later ones.
    if not ((hot_times[1:] < hot_times[:-1]) & (groups[1:] == groups[:-1])).any():
        return None
    by_time = stable_order(hot_times)
    return targets, targets[by_time[stable_order(groups[by_time])]]


def expand_ranges(low: Positions, counts: Positions) -> Positions:
    """All positions of ranges, one range after the other."""
    first = np.cumsum(counts) - counts
    positions: Positions = np.arange(int(counts.sum())) + np.repeat(low - first, counts)
    return positions


def time_range(
    times: Mapping[str, Integers], needles: Positions, stream: str, windows: Windows
) -> tuple[Integers, Integers] | None:
    """For each needle, the first and the last time of rows of ``stream`` that are within its windows.

    None if there is no window. The first may be after the last: then no row is within.
    """
    first, last = None, None
    for name, column in times.items():
        width = windows.width(name, stream)
        if width is None or width > _LATEST:
            continue
        needle_times = column[needles]
        # Clamped before the width is added or subtracted, so that neither end overflows.
        low = np.maximum(needle_times, _EARLIEST + width) - width
        high = np.minimum(needle_times, _LATEST - width) + width
        first = low if first is None else np.maximum(first, low)
        last = high if last is None else np.minimum(last, high)
    return None if first is None or last is None else (first, last)


def narrow_by_time(
    times: Integers, low: Positions, counts: Positions, first: Integers, last: Integers
) -> tuple[Positions, Positions]:
    """Narrow ranges of rows in order of time to the times from ``first`` to ``last``: starts and lengths."""
    high = low + counts
    cut = np.flatnonzero((times[low] < first) | (times[high - 1] > last))
    start, end = low.copy(), high.copy()
    start[cut] = search_ranges(times, low[cut], high[cut], first[cut], after=False)
    end[cut] = search_ranges(times, start[cut], high[cut], last[cut], after=True)
    return start, end - start


def search_ranges(
    values: npt.NDArray[Any], low: Positions, high: Positions, sought: npt.NDArray[Any], *, after: bool
) -> Positions:
    """Binary search in ordered ranges: the first position that is at least, or ``after``, what is sought."""
    is_before = np.less_equal if after else np.less
    steps = int((high - low).max(initial=0)).bit_length()
    for _ in range(steps):
        middle = (low + high) >> 1
        # The middle of an empty range may be past the last row.
        middle_values = values[np.minimum(middle, len(values) - 1)]
        go_up = is_before(middle_values, sought) & (low < high)
        low, high = np.where(go_up, middle + 1, low), np.where(go_up, high, middle)
    return low
