"""What windows mean for sizes: how many combinations of rows lie within them, how long rows are stored."""

from __future__ import annotations

import math
from itertools import combinations

import numpy as np

from midstream.query.query import Query
from midstream.values import MICROS_PER_SECOND

# Points at which windows of different lengths are checked.
_SAMPLE_POINTS = 2048
# Natural logarithm of the largest number of combinations: products with rates must remain finite.
_MAX_LOG_COMBINATIONS = 200.0
# The golden ratio's fraction: multiples of it and of its powers, modulo 1, fill an interval evenly. Random
# numbers would make the estimate another one in every process.
_GOLDEN_FRACTION = 0.6180339887498949
# Windows of no length are calculated with as if they had this many seconds.
_MIN_WINDOW_SECONDS = 1e-6


class WindowModel:
    """The windows of a query in seconds; between streams without one, all of the time that has passed."""

    def __init__(self, query: Query, elapsed: float) -> None:
        self._names = query.names
        self._widths: dict[frozenset[str], float] = {}
        for a, b in combinations(query.names, 2):
            width = query.windows.width(a, b)
            seconds = elapsed if width is None else max(width / MICROS_PER_SECOND, _MIN_WINDOW_SECONDS)
            self._widths[frozenset((a, b))] = seconds
        lengths = set(self._widths.values())
        self._only_width = lengths.pop() if len(lengths) == 1 else None
        """That of all pairs, if it is the same."""
        self._combinations: dict[frozenset[str], float] = {}
        self._lifetimes: dict[frozenset[str], float] = {}

    def width(self, a: str, b: str) -> float:
        """How far apart rows of two streams may be, in seconds."""
        return self._widths[frozenset((a, b))]

    def combinations(self, members: frozenset[str]) -> float:
        """Combinations within all windows per second, if each stream has one row per second."""
        if members not in self._combinations:
            self._combinations[members] = self._count(sorted(members))
        return self._combinations[members]

    def span(self, members: frozenset[str]) -> float:
        """How far apart the rows of a combination may be, in seconds."""
        return max((self._widths[frozenset(pair)] for pair in combinations(members, 2)), default=0.0)

    def lifetime(self, members: frozenset[str]) -> float:
        """How long a state stores a combination: until it has expired for every stream not yet joined."""
        if members not in self._lifetimes:
            self._lifetimes[members] = self._lifetime(members)
        return self._lifetimes[members]

    def _lifetime(self, members: frozenset[str]) -> float:
        others = [name for name in self._names if name not in members]
        if others and self._only_width is not None:
            return self._only_width
        return max((min(self._widths[frozenset((o, m))] for m in members) for o in others), default=0.0)

    def _count(self, members: list[str]) -> float:
        if len(members) == 1:
            return 1.0
        width = self._only_width
        if width is None:
            widths = {self._widths[frozenset(pair)] for pair in combinations(members, 2)}
            width = widths.pop() if len(widths) == 1 else None
        if width is not None:
            # Any of them may be the newest; the others are within the window before it.
            log_combinations = (len(members) - 1) * math.log(width)
            return len(members) * math.exp(min(log_combinations, _MAX_LOG_COMBINATIONS))
        return self._count_uneven(members)

    def _count_uneven(self, members: list[str]) -> float:
        """The volume of all combinations of times that lie within windows of different lengths.

        Streams are added one by one, each within its window of one that is there already; of the points that
        are sampled from that region, some lie within the other windows too.
        """
        times = {members[0]: np.zeros(_SAMPLE_POINTS)}
        numbers = np.arange(1, _SAMPLE_POINTS + 1)
        volume = 1.0
        while len(times) < len(members):
            pairs = [
                (self._widths[frozenset((t, m))], t, m) for t in times for m in members if m not in times
            ]
            width, neighbour, name = min(pairs)
            fractions = np.modf(numbers * _GOLDEN_FRACTION ** len(times))[0]
            times[name] = times[neighbour] + width * (2 * fractions - 1)
            volume *= 2 * width
        within = np.ones(_SAMPLE_POINTS, np.bool_)
        for a, b in combinations(members, 2):
            within &= np.abs(times[a] - times[b]) <= self._widths[frozenset((a, b))]
        share = max(float(within.mean()), 1 / _SAMPLE_POINTS)
        return min(volume, math.exp(_MAX_LOG_COMBINATIONS)) * share
