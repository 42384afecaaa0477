"""Statistics after an epoch: earlier rows decay, and those of the epoch are added.

The sample of keys is **correlated**: every stream keeps the same keys, those with the smallest hashes, so
that joining samples estimates the join of the streams, for any set of them, whether or not the running plan
ever joins them. Sketches of sums (AGMS) would need less space, but only work for two streams; independent
samples would hardly ever have a key in common. Sampling is bad at a few keys with a large share of the rows,
so those, the frequent keys, are counted separately.

Rows decay with a time constant of half the window. Rows that keep coming then weigh as if they were spread
over that time; rows of two streams that come together, like an order and its payment, are as often together
in the statistics as in the window.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import combinations

import numpy as np
import numpy.typing as npt

from midstream.engine.hashing import Hashes
from midstream.engine.key_sample import MIN_SAMPLED_SHARE, KeyCounts, Sampling, fractions
from midstream.plan.layout import key_column
from midstream.plan.state_id import StateId
from midstream.query.query import Query
from midstream.state.statistics import KeyStatistics, Statistics, StreamStatistics
from midstream.values import MICROS_PER_SECOND

MAX_SAMPLED_KEYS = 512
"""Keys that are kept of a stream and key class, besides frequent keys: with weights, 8 KB in a manifest."""
MAX_FREQUENT_KEYS = 32
"""Frequent keys of a key class."""
# A key is frequent if it has this share of a stream's rows, until it has less than half of that.
_FREQUENT_SHARE = 1 / 128
# Rows, after decay, below which a key is forgotten: its last row came four and a half time constants ago.
_MIN_KEY_WEIGHT = 0.01

Weights = npt.NDArray[np.float64]


def half_window(query: Query) -> float:
    """Half of the longest window in seconds; infinite if some streams are joined without a window."""
    bounds = [query.windows.bound(a, b) for a, b in combinations(query.names, 2)]
    finite = [bound for bound in bounds if bound is not None]
    return max(finite) / MICROS_PER_SECOND / 2 if len(finite) == len(bounds) and max(finite) > 0 else math.inf


def advance(
    query: Query,
    before: Statistics,
    *,
    seconds: float,
    rows: Mapping[str, int],
    sizes: Mapping[str, int],
    keys: Mapping[str, KeyCounts],
    produced: Mapping[StateId, int] | None,
) -> Statistics:
    """The statistics after an epoch in which so many ``seconds`` of event time have passed.

    ``rows`` and ``sizes``, in bytes, are by stream, ``keys`` by key column. ``produced`` are the rows that
    the running plan produced, by state; None if two plans ran, or another one than before.
    """
    constant = half_window(query)
    decay = math.exp(-seconds / constant)
    # Rows that came during the epoch have decayed for a part of it: this is their mean weight.
    weight = constant * (1 - decay) / seconds if seconds > 0 and constant < math.inf else 1.0
    streams = {}
    for name in query.names:
        old = before.streams.get(name, StreamStatistics())
        columns = [key_column(name, c.id) for c in query.classes if name in c.streams]
        streams[name] = StreamStatistics(
            rows=old.rows * decay + rows.get(name, 0) * weight,
            bytes=old.bytes * decay + sizes.get(name, 0) * weight,
            keys={
                column: _add_counts(old.keys.get(column, KeyStatistics()), keys.get(column), decay, weight)
                for column in columns
            },
        )
    frequent = {c.id: _frequent_keys(query, c.id, before, streams, keys) for c in query.classes}
    for name, stream in streams.items():
        trimmed = {
            key_column(name, c.id): _trim(stream.keys[key_column(name, c.id)], frequent[c.id])
            for c in query.classes
            if name in c.streams
        }
        streams[name] = StreamStatistics(stream.rows, stream.bytes, trimmed)
    return Statistics(
        seconds=before.seconds * decay + seconds * weight,
        elapsed=before.elapsed + seconds,
        epochs=before.epochs * decay + weight,
        streams=streams,
        frequent_keys=frequent,
        produced={} if produced is None else _add_produced(before.produced, produced, decay, weight),
        observed_seconds=0.0 if produced is None else before.observed_seconds * decay + seconds * weight,
    )


def _add_produced(
    before: Mapping[StateId, float], produced: Mapping[StateId, int], decay: float, weight: float
) -> dict[StateId, float]:
    states = dict.fromkeys([*before, *produced])
    return {state: before.get(state, 0.0) * decay + produced.get(state, 0) * weight for state in states}


def samplings(query: Query, statistics: Statistics) -> dict[str, Sampling]:
    """Which keys the next epoch counts, by key column."""
    return {
        column: Sampling(keys.threshold, statistics.frequent_keys.get(c.id, b""))
        for c in query.classes
        for name in c.streams
        for column, keys in statistics.streams.get(name, StreamStatistics()).keys.items()
        if column == key_column(name, c.id)
    }


def arrays(keys: KeyStatistics) -> tuple[Hashes, Weights]:
    """Keys in ascending order, and their weights."""
    return np.frombuffer(keys.keys, "<u8"), np.frombuffer(keys.weights, "<f8")


def _add_counts(old: KeyStatistics, new: KeyCounts | None, decay: float, weight: float) -> KeyStatistics:
    keys, old_weights = arrays(old)
    weights = old_weights * decay
    threshold = old.threshold
    if new is not None:
        threshold = min(threshold, new.threshold)
        keys = np.concatenate([keys, np.frombuffer(new.keys, "<u8")])
        weights = np.concatenate([weights, np.frombuffer(new.counts, "<f8") * weight])
    distinct, positions = np.unique(keys, return_inverse=True)
    sums = np.bincount(positions, weights, len(distinct)).astype("<f8")
    return KeyStatistics(threshold, distinct.tobytes(), sums.tobytes())


def _frequent_keys(
    query: Query,
    key_class: int,
    before: Statistics,
    streams: Mapping[str, StreamStatistics],
    counted: Mapping[str, KeyCounts],
) -> bytes:
    """The keys that have a large share of some stream; of too many, those with the largest shares."""
    frequent_before = set(np.frombuffer(before.frequent_keys.get(key_class, b""), "<u8").tolist())
    shares: dict[int, float] = {}
    for name in (n for n in query.names if n in query.classes[key_class].streams):
        column = key_column(name, key_class)
        rows = max(streams[name].rows, 1e-9)
        keys, weights = arrays(streams[name].keys[column])
        for i in np.flatnonzero(weights >= rows * _FREQUENT_SHARE / 2).tolist():
            key, share = int(keys[i]), float(weights[i]) / rows
            if share >= _FREQUENT_SHARE or key in frequent_before:
                shares[key] = max(shares.get(key, 0.0), share)
        if column in counted:
            for key in np.frombuffer(counted[column].frequent, "<u8").tolist():
                shares[key] = max(shares.get(key, 0.0), _FREQUENT_SHARE)
    largest = sorted(shares, key=lambda key: (-shares[key], key))[:MAX_FREQUENT_KEYS]
    return np.array(sorted(largest), "<u8").tobytes()


def _trim(keys: KeyStatistics, frequent: bytes) -> KeyStatistics:
    """Forget keys that have decayed, and all but a number of keys with the smallest hashes."""
    hashes, weights = arrays(keys)
    is_frequent = np.isin(hashes, np.frombuffer(frequent, "<u8"))
    hash_fractions = fractions(hashes)
    kept = is_frequent | ((weights >= _MIN_KEY_WEIGHT) & (hash_fractions < keys.threshold))
    threshold = keys.threshold
    others = np.sort(hash_fractions[kept & ~is_frequent])
    if len(others) > MAX_SAMPLED_KEYS:
        threshold = max(float(others[MAX_SAMPLED_KEYS]), MIN_SAMPLED_SHARE)
        kept &= is_frequent | (hash_fractions < threshold)
    elif len(others) < MAX_SAMPLED_KEYS // 8:
        # There is room for more keys: from now on a larger share is sampled. Until the added keys have been
        # counted for some time constants, they seem rarer than they are.
        threshold = min(1.0, 2 * threshold)
    return KeyStatistics(threshold, hashes[kept].tobytes(), weights[kept].tobytes())
