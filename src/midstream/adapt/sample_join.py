"""Joining samples of keys: what streams that share a key class would produce, by what their samples produce.

Entries of the same key are combined if they are within the windows of each other, as the engine combines
rows. How many combinations a row of a stream completes on average, as the newest of them, is multiplied by
the rate of the stream. So a row far from all others counts as one row that matches nothing.

Only rows count as the newest for which the sample has all that they may have matched. As long as less than
two windows of event time have passed, that is so within shorter windows only. How the number grows with the
window, from none for rows that come together to a power for rows that come at any time, tells the rest.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from midstream.adapt.statistics import BUCKETS_IN_WINDOW, decay_seconds, entries, window_or_recent
from midstream.adapt.window_model import WindowModel
from midstream.engine.key_sample import fractions
from midstream.plan.layout import key_column
from midstream.query.query import Query
from midstream.state.statistics import Statistics, StreamStatistics
from midstream.values import MICROS_PER_SECOND

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]
Booleans = npt.NDArray[np.bool_]
Streams = frozenset[str]

# Combinations that are carried on from one stream to the next: more are represented by as many of them.
_MAX_COMBINATIONS = 2048
# The share of a window by which a stream may lag behind the others; if it lags further, rows that are the
# newest of theirs are taken for it although the stream may still bring matches.
_MAX_LAG = 0.5
# If no sampled keys meet, as many combinations are assumed as cannot be ruled out.
_UNSEEN_COMBINATIONS = 0.5
_UNSEEN_ERROR = 20.0
# They are assumed for this share of the time that has passed at least, or few rows would stand for millions.
_MIN_KNOWN_SHARE = 0.1
# What is seen of a window weighs as much as this share of it, because rows fade.
_FADED_SHARE = 0.43
# The relative error that is added for each factor of e by which a window is longer than what was seen.
_ERROR_PER_EXTRAPOLATION = 0.5
# At the very beginning, what has been seen is taken for this share of a window.
_MIN_SEEN_SHARE = 1e-3
# Stands for zero where something is divided by it.
_TINY = 1e-9


class Matching(NamedTuple):
    """How often streams of a key class meet."""

    rate: float
    """Combinations per second."""
    error: float
    """The standard error of the rate, relative to it."""
    spread: float
    """From 0, if rows that match come at the same time, to 1, if they come at any time within the window."""


@dataclass(frozen=True)
class _Combinations:
    """Combinations of entries with the same key; to begin with, the entries of one stream."""

    keys: Integers
    """Positions in the keys of all streams."""
    times: dict[str, Floats]
    is_merged: dict[str, Booleans]
    """Whether an entry has several rows, whose times are known only roughly."""
    rows: Floats
    """How many combinations of rows each stands for, within the windows."""
    near_rows: Floats
    """Those of them that are within half of the windows."""

    def take(self, which: Integers, rows: Floats, near_rows: Floats) -> _Combinations:
        """Some of them, with new numbers of rows."""
        return _Combinations(
            self.keys[which],
            {name: times[which] for name, times in self.times.items()},
            {name: merged[which] for name, merged in self.is_merged.items()},
            rows,
            near_rows,
        )


class SampleJoin:
    """The joined samples of one key class."""

    def __init__(self, query: Query, key_class: int, statistics: Statistics, windows: WindowModel) -> None:
        names = [name for name in query.names if name in query.classes[key_class].streams]
        self._streams = {name: statistics.streams.get(name, StreamStatistics()) for name in names}
        samples = {name: stream.keys[key_column(name, key_class)] for name, stream in self._streams.items()}
        sampled = {name: entries(keys) for name, keys in samples.items()}
        keys = np.unique(np.concatenate([sample.keys for sample in sampled.values()]))
        self._thresholds = {name: sample.threshold for name, sample in samples.items()}
        self._fractions = fractions(keys)
        self._is_frequent = np.isin(keys, np.frombuffer(statistics.frequent_keys.get(key_class, b""), "<u8"))
        self._present = max((s.position for s in self._streams.values() if s.position is not None), default=0)
        self._seconds = max(statistics.seconds, _TINY)
        self._elapsed = statistics.elapsed
        self._has_window = decay_seconds(query) < math.inf
        self._window = max(window_or_recent(query, statistics.elapsed), _TINY)
        self._constant = decay_seconds(query)
        self._windows = windows
        self._bucket = self._window / BUCKETS_IN_WINDOW
        # Rows have all their matches in the sample within this share of the windows.
        seen = max(self._elapsed / 2 / self._window, _MIN_SEEN_SHARE) if self._has_window else 1.0
        self._seen_share = min(1.0, seen)
        self._entries: dict[str, _Combinations] = {}
        for name, sample in sampled.items():
            times = (sample.times - self._present) / MICROS_PER_SECOND
            positions = np.searchsorted(keys, sample.keys)
            self._entries[name] = _Combinations(
                positions, {name: times}, {name: sample.rows > 1}, sample.rows, sample.rows
            )
        self._joined: dict[tuple[str, ...], _Combinations] = {}
        self._matching: dict[Streams, Matching] = {}

    def matching(self, members: Streams) -> Matching:
        """How often some streams of the class meet."""
        if members not in self._matching:
            self._matching[members] = self._estimate(tuple(sorted(members)))
        return self._matching[members]

    def _estimate(self, members: tuple[str, ...]) -> Matching:
        lag = self._lag(members)
        # Times are before the present: rows from the first to the last have all their matches in the sample.
        last = -lag
        first = max(-self._window, self._seen_share * self._window - self._elapsed)
        threshold = min(self._thresholds[name] for name in members)
        scale = self._scale(members)
        joined = self._join(members)
        times = np.stack([joined.times[name] for name in members])
        newest, latest = times.argmax(axis=0), times.max(axis=0, initial=-math.inf)
        faded = self._fade(latest, first, last) * scale[joined.keys]
        near_rate = 0.0
        by_key = np.zeros(len(scale))
        for i, name in enumerate(members):
            stream = self._entries[name]
            fade = self._fade(stream.times[name], first, last)
            rows = float((fade * scale[stream.keys] * stream.rows).sum())
            if rows <= 0:
                continue
            per_row = self._streams[name].rows / self._seconds / rows
            weights = np.where(newest == i, faded, 0.0) * per_row
            by_key += np.bincount(joined.keys, weights * joined.rows, len(scale))
            near_rate += float((weights * joined.near_rows).sum())
        rate = float(by_key.sum())
        if rate <= 0:
            # There may be hardly any time, or none, in which rows have all their matches in the sample.
            seconds = max(last - first, _MIN_KNOWN_SHARE * self._elapsed, _TINY) * _FADED_SHARE
            unseen = min(_UNSEEN_COMBINATIONS / threshold / seconds, self._all_combinations(members))
            return Matching(unseen, _UNSEEN_ERROR, 1.0)
        variance = float((by_key**2 * self._variability(members, threshold)).sum())
        error = math.sqrt(variance) / rate
        most = len(members) - 1
        growth = min(max(math.log2(rate / max(near_rate, rate / 2**most)), 0.0), most)
        # Within windows of the full length there are as many times more.
        longer = -math.log(self._seen_share)
        return Matching(
            rate * math.exp(growth * longer), error + _ERROR_PER_EXTRAPOLATION * longer, growth / most
        )

    def _all_combinations(self, members: tuple[str, ...]) -> float:
        """The combinations of rows within all windows, per second, whatever their keys."""
        rates = math.prod(self._streams[name].rows / self._seconds for name in members)
        return rates * self._windows.combinations(frozenset(members))

    def _scale(self, members: tuple[str, ...]) -> Floats:
        """How many keys each one stands for; none if some of the streams do not sample it."""
        threshold = min(self._thresholds[name] for name in members)
        return np.where(self._is_frequent, 1.0, np.where(self._fractions < threshold, 1 / threshold, 0.0))

    def _variability(self, members: tuple[str, ...], threshold: float) -> Floats:
        """The variance of the rate of each key's combinations, as a share of its square.

        A key that is not frequent stands for others, which may have other rates. And each of them varies by
        chance, the more the fewer rows there are of it.
        """
        chance = np.zeros(len(self._fractions))
        for name in members:
            stream = self._entries[name]
            chance += 1 / np.maximum(np.bincount(stream.keys, stream.rows, len(chance)), _TINY)
        chance = np.minimum(chance, 1.0)
        return np.where(self._is_frequent, chance, 1 - threshold + threshold * chance)

    def _lag(self, members: tuple[str, ...]) -> float:
        """How far behind the present the slowest of the streams is, in seconds."""
        positions = [self._streams[name].position for name in members]
        slowest = min((position for position in positions if position is not None), default=self._present)
        return min((self._present - slowest) / MICROS_PER_SECOND, _MAX_LAG * self._window)

    def _fade(self, times: Floats, first: float, last: float) -> Floats:
        """The weights of rows by their times; none outside a range."""
        return np.where((times >= first) & (times <= last), np.exp((times - last) / self._constant), 0.0)

    def _join(self, members: tuple[str, ...]) -> _Combinations:
        """The combinations of entries within the windows, as far as all that they match has been seen."""
        if len(members) == 1:
            return self._entries[members[0]]
        if members not in self._joined:
            extended = self._extend(self._join(members[:-1]), members[-1])
            self._joined[members] = _represent(extended, self._scale(members)[extended.keys])
        return self._joined[members]

    def _extend(self, combinations: _Combinations, name: str) -> _Combinations:
        stream = self._entries[name]
        starts = np.searchsorted(stream.keys, combinations.keys, "left")
        counts = np.searchsorted(stream.keys, combinations.keys, "right") - starts
        left = np.repeat(np.arange(len(counts)), counts)
        right = np.arange(len(left)) + np.repeat(starts - np.cumsum(counts) + counts, counts)
        times, is_merged = stream.times[name][right], stream.is_merged[name][right]
        rows = combinations.rows[left] * stream.rows[right]
        near_rows = combinations.near_rows[left] * stream.rows[right]
        # A row for each stream that is there already: many small arrays would take longer.
        others = list(combinations.times)
        apart = np.abs(np.stack([combinations.times[other] for other in others])[:, left] - times)
        merged = np.stack([combinations.is_merged[other] for other in others])[:, left] | is_merged
        widths = np.array([[self._windows.width(name, other) * self._seen_share] for other in others])
        rows = rows * _share_within(apart, widths, merged, self._bucket)
        near_rows = near_rows * _share_within(apart, widths / 2, merged, self._bucket)
        found = rows > 0
        extended = combinations.take(left[found], rows[found], near_rows[found])
        return _Combinations(
            extended.keys,
            {**extended.times, name: times[found]},
            {**extended.is_merged, name: is_merged[found]},
            extended.rows,
            extended.near_rows,
        )


def _share_within(apart: Floats, widths: Floats, is_merged: Booleans, bucket: float) -> Floats:
    """The share of rows within all windows, if distances of merged ones are known up to a bucket."""
    overlap = np.minimum(apart + bucket / 2, widths) - np.maximum(apart - bucket / 2, -widths)
    shares = np.where(is_merged, np.maximum(overlap, 0.0) / bucket, apart <= widths)
    together: Floats = shares.prod(axis=0)
    return together


def _represent(combinations: _Combinations, scale: Floats) -> _Combinations:
    """Some of the combinations, which stand for all: taken in proportion to how many rows they have."""
    if len(combinations.keys) <= _MAX_COMBINATIONS:
        return combinations
    sums = np.cumsum(combinations.rows * scale)
    share = sums[-1] / _MAX_COMBINATIONS
    points = (np.arange(_MAX_COMBINATIONS) + 0.5) * share
    taken, times = np.unique(np.searchsorted(sums, points), return_counts=True)
    factor = times * share / (combinations.rows[taken] * scale[taken])
    return combinations.take(taken, combinations.rows[taken] * factor, combinations.near_rows[taken] * factor)
