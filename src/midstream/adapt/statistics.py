"""Statistics after an epoch: earlier rows decay, and those of the epoch are added.

The sample of keys is **correlated**: every stream keeps the same keys, those with the smallest hashes, so
that joining samples estimates the join of the streams, for any set of them, whether or not the running plan
ever joins them. Sketches of sums (AGMS) would need less space, but only work for two streams; independent
samples would hardly ever have a key in common. Sampling is bad at a few keys with a large share of the rows,
so those, the frequent keys, are counted separately.

Entries of the sample have times, of the last two windows, so that they are joined as the rows are: by key
and within the windows. How often keys of two streams meet depends on when they come. An order and its payment
come together; two visits of a customer may be any time apart.

Counts of all rows decay with a time constant of half the window, so that rates are those of the rows that may
still be joined.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from msgspec.structs import replace

from midstream.adapt.positions import Position, advance_position, median_position
from midstream.engine.event_times import TimeRange, Times
from midstream.engine.hashing import Hashes
from midstream.engine.key_sample import (
    KeyCounts,
    Rows,
    Sampling,
    fractions,
    is_recent,
    lower_threshold,
    merge_entries,
)
from midstream.plan.layout import key_column
from midstream.plan.state_id import StateId
from midstream.query.query import Query
from midstream.state.costs import NO_WORK, Cost
from midstream.state.statistics import KeyStatistics, Statistics, StreamStatistics
from midstream.values import MICROS_PER_SECOND

MAX_SAMPLED_ENTRIES = 1024
"""Entries that are kept of a stream and key class, besides those of frequent keys."""
MAX_FREQUENT_KEYS = 32
"""Frequent keys of a key class."""
# A key is frequent if it has this share of a stream's rows, until it has less than half of that; and so many
# rows, or it may be chance.
_FREQUENT_SHARE = 1 / 128
_MIN_FREQUENT_ROWS = 8.0
BUCKETS_IN_WINDOW = 8
"""Rows of a key within this part of a window are one entry."""
# Without a window, the part of the time so far that counts as recent; rows before it are one entry for a key.
_RECENT_SHARE = 1 / 4


def decay_seconds(query: Query) -> float:
    """Half of the longest window in seconds; infinite if some streams are joined without one, or by time."""
    return query.longest_window / MICROS_PER_SECOND / 2 or math.inf


def window_or_recent(query: Query, elapsed: float) -> float:
    """The longest window in seconds; without one, the last quarter of the time that has passed."""
    half = decay_seconds(query)
    return 2 * half if half < math.inf else elapsed * _RECENT_SHARE


def advance(
    query: Query,
    before: Statistics,
    *,
    ranges: Mapping[str, TimeRange | None],
    sizes: Mapping[str, int],
    keys: Mapping[str, KeyCounts],
    produced: Mapping[StateId, int] | None,
    spent: Cost = NO_WORK,
) -> Statistics:
    """The statistics after an epoch.

    ``ranges`` are the event times and the numbers of its rows, ``sizes`` their bytes, by stream; ``keys`` are
    by key column. ``produced`` are the rows that the running plan produced, by state; None if
    two plans ran, or another one than before. ``spent`` is the work that it did.
    """
    window = window_or_recent(query, before.elapsed) * MICROS_PER_SECOND
    positions = {}
    for name in query.names:
        old = before.streams.get(name, StreamStatistics())
        positions[name] = advance_position(Position(old.position, old.last_end), ranges.get(name), window)
    start = median_position(stream.position for stream in before.streams.values())
    end = median_position(position.time for position in positions.values())
    seconds = max(end - start, 0) / MICROS_PER_SECOND if start is not None and end is not None else 0.0
    constant = decay_seconds(query)
    decay = math.exp(-seconds / constant)
    # Rows that came during the epoch have decayed for a part of it: this is their mean weight.
    weight = constant * (1 - decay) / seconds if seconds > 0 and constant < math.inf else 1.0
    # It is unknown how much event time the first rows cover: they are sampled, but not counted.
    counted = start is not None
    elapsed = before.elapsed + seconds
    streams = {}
    for name in query.names:
        old, arrived = before.streams.get(name, StreamStatistics()), ranges.get(name)
        columns = [key_column(name, c.id) for c in query.classes if name in c.streams]
        streams[name] = StreamStatistics(
            rows=old.rows * decay + (arrived.rows if arrived else 0) * weight * counted,
            bytes=old.bytes * decay + sizes.get(name, 0) * weight * counted,
            keys={
                column: _add_counts(
                    old.keys.get(column, KeyStatistics()),
                    keys.get(column),
                    _Buckets.at(query, elapsed),
                    end or 0,
                    positions[name].time or 0,
                )
                for column in columns
            },
            position=positions[name].time,
            last_end=positions[name].last_end,
        )
    frequent = {c.id: _frequent_keys(query, c.id, before, streams, keys, end) for c in query.classes}
    for name, stream in streams.items():
        trimmed = {
            key_column(name, c.id): _trim(stream.keys[key_column(name, c.id)], frequent[c.id])
            for c in query.classes
            if name in c.streams
        }
        streams[name] = replace(stream, keys=trimmed)
    return Statistics(
        seconds=before.seconds * decay + seconds * weight,
        elapsed=elapsed,
        epochs=before.epochs * decay + weight * counted,
        streams=streams,
        frequent_keys=frequent,
        produced=_add_produced(before.produced, produced, decay, weight * counted),
        spent=NO_WORK if produced is None else before.spent * decay + spent * (weight * counted),
        observed_seconds=0.0 if produced is None else before.observed_seconds * decay + seconds * weight,
        calibration=before.calibration,
    )


class _Buckets(NamedTuple):
    """Which rows of a key are one entry, and which are forgotten; times are in microseconds."""

    width: int
    """Rows in the same stretch of time, so long, are one entry."""
    window: int | None
    """Rows are forgotten after some windows; None if none are."""
    recent: int
    """Without a window, all rows older than this are one entry."""

    @classmethod
    def at(cls, query: Query, elapsed: float) -> _Buckets:
        """The buckets when so many seconds have passed."""
        recent = round(window_or_recent(query, elapsed) * MICROS_PER_SECOND)
        window = recent if decay_seconds(query) < math.inf else None
        return cls(max(1, round(recent / BUCKETS_IN_WINDOW)), window, recent)


def _add_produced(
    before: Mapping[StateId, float], produced: Mapping[StateId, int] | None, decay: float, weight: float
) -> dict[StateId, float]:
    if produced is None:
        return {}
    states = dict.fromkeys([*before, *produced])
    return {state: before.get(state, 0.0) * decay + produced.get(state, 0) * weight for state in states}


def samplings(query: Query, statistics: Statistics) -> dict[str, Sampling]:
    """Which keys the next epoch counts, by key column."""
    buckets = _Buckets.at(query, statistics.elapsed)
    return {
        column: Sampling(
            threshold=statistics.streams.get(name, StreamStatistics())
            .keys.get(column, KeyStatistics())
            .threshold,
            always_counted=statistics.frequent_keys.get(c.id, b""),
            bucket=buckets.width,
            window=buckets.window,
        )
        for c in query.classes
        for name in c.streams
        for column in [key_column(name, c.id)]
    }


class Entries(NamedTuple):
    """The entries of a sample, in ascending order of keys."""

    keys: Hashes
    times: Times
    rows: Rows

    def where(self, kept: npt.NDArray[np.bool_]) -> Entries:
        """Some of the entries."""
        return Entries(self.keys[kept], self.times[kept], self.rows[kept])


def entries(keys: KeyStatistics) -> Entries:
    """The entries of statistics; none of those that earlier versions kept, without times."""
    times = np.frombuffer(keys.times, "<i8")
    known = keys if len(keys.keys) == len(keys.times) else KeyStatistics()
    hashes, rows = np.frombuffer(known.keys, "<u8"), np.frombuffer(known.weights, "<f4")
    return Entries(hashes, times, rows.astype(np.float64))


def _key_statistics(threshold: float, sample: Entries) -> KeyStatistics:
    keys, times, rows = sample
    return KeyStatistics(
        threshold,
        keys.astype("<u8").tobytes(),
        rows.astype("<f4").tobytes(),
        times.astype("<i8").tobytes(),
    )


def _add_counts(
    old: KeyStatistics, new: KeyCounts | None, buckets: _Buckets, now: int, position: int
) -> KeyStatistics:
    keys, times, rows = entries(old)
    threshold = old.threshold
    if new is not None:
        threshold = min(threshold, new.threshold)
        keys = np.concatenate([keys, np.frombuffer(new.keys, "<u8")])
        times = np.concatenate([times, np.frombuffer(new.times, "<i8")])
        rows = np.concatenate([rows, np.frombuffer(new.counts, "<f8")])
    if buckets.window is None:
        bucket = np.maximum(times, now - buckets.recent) // buckets.width
    else:
        kept = is_recent(times, now, position, buckets.window)
        keys, times, rows = keys[kept], times[kept], rows[kept]
        bucket = times // buckets.width
    return _key_statistics(threshold, Entries(*merge_entries(keys, times, rows, bucket)))


def _frequent_keys(
    query: Query,
    key_class: int,
    before: Statistics,
    streams: Mapping[str, StreamStatistics],
    counted: Mapping[str, KeyCounts],
    end: int | None,
) -> bytes:
    """The keys that have a large share of some stream; of too many, those with the largest shares."""
    frequent_before = set(np.frombuffer(before.frequent_keys.get(key_class, b""), "<u8").tolist())
    shares: dict[int, float] = {}
    for name in (n for n in query.names if n in query.classes[key_class].streams):
        column = key_column(name, key_class)
        rows = max(streams[name].rows, 1e-9)
        keys, weights = _weights(query, streams[name].keys[column], end)
        for i in np.flatnonzero(weights >= max(rows * _FREQUENT_SHARE, _MIN_FREQUENT_ROWS) / 2).tolist():
            key, share = int(keys[i]), float(weights[i]) / rows
            is_frequent = share >= _FREQUENT_SHARE and weights[i] >= _MIN_FREQUENT_ROWS
            if is_frequent or key in frequent_before:
                shares[key] = max(shares.get(key, 0.0), share)
        if column in counted:
            for key in np.frombuffer(counted[column].frequent, "<u8").tolist():
                shares[key] = max(shares.get(key, 0.0), _FREQUENT_SHARE)
    largest = sorted(shares, key=lambda key: (-shares[key], key))[:MAX_FREQUENT_KEYS]
    return np.array(sorted(largest), "<u8").tobytes()


def _weights(query: Query, keys: KeyStatistics, end: int | None) -> tuple[Hashes, Rows]:
    """The keys of a sample, and their rows decayed as those of the stream are."""
    hashes, times, rows = entries(keys)
    ages = np.maximum((end or 0) - times, 0) / MICROS_PER_SECOND
    distinct, positions = np.unique(hashes, return_inverse=True)
    decayed = rows * np.exp(-ages / decay_seconds(query))
    return distinct, np.bincount(positions, decayed, len(distinct)).astype(np.float64)


def _trim(keys: KeyStatistics, frequent: bytes) -> KeyStatistics:
    """Forget all but a number of entries: those of the keys with the smallest hashes."""
    sample, always = entries(keys), np.frombuffer(frequent, "<u8")
    threshold = lower_threshold(sample.keys, always, keys.threshold, MAX_SAMPLED_ENTRIES)
    is_frequent, is_sampled = np.isin(sample.keys, always), fractions(sample.keys) < threshold
    kept = is_frequent | is_sampled
    if np.count_nonzero(is_sampled & ~is_frequent) < MAX_SAMPLED_ENTRIES // 8:
        # There is room for more keys: from now on a larger share is sampled. Until the added keys have been
        # counted for two windows, they seem rarer than they are.
        threshold = min(1.0, 2 * threshold)
    return _key_statistics(threshold, sample.where(kept))
