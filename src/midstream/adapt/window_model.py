"""Nearness: what windows mean for sizes. How many combinations of rows are near enough, and for how long."""

from __future__ import annotations

import math
from itertools import combinations

import numpy as np

from midstream.adapt.statistics import SECOND
from midstream.query.query import Query

# Points that are tried to find out which share of a region lies within several windows.
_POINTS = 2048
# Logarithm of the largest number of combinations.
_LARGEST = 200.0
# Fractions of multiples of this number, and of its powers, are spread evenly.
_SPREAD = 0.6180339887498949


class WindowModel:
    """The windows of a query in seconds; where there is none, all of the time that has passed."""

    def __init__(self, query: Query, elapsed: float) -> None:
        self._names = query.names
        self._bounds: dict[frozenset[str], float] = {}
        for a, b in combinations(query.names, 2):
            bound = query.windows.bound(a, b)
            seconds = elapsed if bound is None else max(bound / SECOND, 1e-6)
            self._bounds[frozenset((a, b))] = seconds
        self._counted: dict[frozenset[str], float] = {}

    def combinations(self, members: frozenset[str]) -> float:
        """Of one row each a second: combinations that are near enough, in a second."""
        if members not in self._counted:
            self._counted[members] = self._count(sorted(members))
        return self._counted[members]

    def span(self, members: frozenset[str]) -> float:
        """How far apart rows of a combination may be."""
        return max((self._bounds[frozenset(pair)] for pair in combinations(members, 2)), default=0.0)

    def lifetime(self, members: frozenset[str]) -> float:
        """How long a state keeps a combination: until it is too old for every stream that may still come."""
        others = [name for name in self._names if name not in members]
        return max((min(self._bounds[frozenset((o, m))] for m in members) for o in others), default=0.0)

    def _count(self, members: list[str]) -> float:
        bounds = {self._bounds[frozenset(pair)] for pair in combinations(members, 2)}
        if len(members) == 1:
            return 1.0
        if len(bounds) == 1:
            # Any of them may be the newest; the others are within the window before it.
            return len(members) * _power(bounds.pop(), len(members) - 1)
        return self._count_uneven(members)

    def _count_uneven(self, members: list[str]) -> float:
        """Streams are added one by one, each near one that is there; then all windows are checked."""
        times = {members[0]: np.zeros(_POINTS)}
        steps = np.arange(1, _POINTS + 1)
        volume = 1.0
        while len(times) < len(members):
            waiting = [
                (self._bounds[frozenset((t, m))], t, m) for t in times for m in members if m not in times
            ]
            bound, there, name = min(waiting)
            place = np.modf(steps * _SPREAD ** len(times))[0]
            times[name] = times[there] + bound * (2 * place - 1)
            volume *= 2 * bound
        within = np.ones(_POINTS, np.bool_)
        for a, b in combinations(members, 2):
            within &= np.abs(times[a] - times[b]) <= self._bounds[frozenset((a, b))]
        return min(volume, math.exp(_LARGEST)) * max(float(within.mean()), 1 / _POINTS)


def _power(base: float, exponent: int) -> float:
    """The power, but no number that is too large to go on with."""
    return math.exp(min(exponent * math.log(base), _LARGEST))
