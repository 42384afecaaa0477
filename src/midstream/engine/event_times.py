"""Event times of an epoch's rows, as far as most of them agree: single rows ahead or behind do not count.

A partition reports the range of most of its rows, without the eighth at either end. The range of the epoch is
the median of these: rows come to partitions by the hashes of their keys, so each partition sees the same.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np
import numpy.typing as npt

Times = npt.NDArray[np.int64]

# The share of rows that may be wrong at either end.
_TRIMMED = 8


class TimeRange(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The event times of most of some rows, in microseconds."""

    start: int
    end: int
    rows: int = 1
    """All of the rows but those that are far ahead of the range."""


def robust_end(times: Times) -> int:
    """The time up to which most rows are: an eighth of them, at least one of several, is later."""
    rows = len(times)
    position = rows - 1 - -(-rows // _TRIMMED) if rows > 1 else 0
    return int(np.partition(times, position)[position])


def robust_range(times: Times, window: float) -> TimeRange:
    """The range of most rows, of which there must be one; the window is in microseconds."""
    end = robust_end(times)
    start = min(-robust_end(-times), end)
    return TimeRange(start, end, int(np.count_nonzero(times <= end + max(window, end - start))))


def common_range(ranges: Sequence[TimeRange], window: float) -> TimeRange | None:
    """The range that partitions agree on: the medians, each partition weighing as much as it has rows."""
    if not ranges:
        return None
    end = _weighted_median([(r.end, r.rows) for r in ranges])
    start = min(_weighted_median([(r.start, r.rows) for r in ranges]), end)
    latest = end + max(window, end - start)
    return TimeRange(start, end, sum(r.rows for r in ranges if r.start <= latest))


def _weighted_median(values: Sequence[tuple[int, int]]) -> int:
    """The lower median, so that of two partitions the one with a row ahead of time is not believed."""
    half = sum(weight for _, weight in values) / 2
    below = 0
    for value, weight in sorted(values):
        below += weight
        if below >= half:
            return value
    raise AssertionError("weights are positive")
