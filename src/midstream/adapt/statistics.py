"""Statistics after an epoch: what was known fades, and what the epoch brought is added.

The sample of keys is **correlated**: every stream keeps the same keys, those with the smallest hashes, so
that joining samples estimates the join of the streams, for any set of them, whether or not the running plan
ever joins them. Sketches of sums (as in AGMS) would need less room for two streams, and cannot do more than
two; independent samples would hardly ever meet in a key. What sampling is bad at, a few keys with a large
share of the rows, is counted apart.

Rows fade with a time constant of half the window. Rows that keep coming are then weighted as if they were
spread over that time, and rows of two streams that come together, like an order and its payment, as they
are in the window.
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

SECOND = 1_000_000
# Keys that are kept of a stream and class, and frequent ones of a class.
KEYS = 512
FREQUENT_KEYS = 32
# A key is frequent if it has this share of a stream's rows, until it has less than half of it.
_SHARE = 1 / 128
# Below this weight a key is forgotten: nearly all of what it had has faded.
_FORGOTTEN = 0.01

Weights = npt.NDArray[np.float64]


def half_window(query: Query) -> float:
    """The time constant of fading, in seconds; infinite if some streams are joined without a window."""
    bounds = [query.windows.bound(a, b) for a, b in combinations(query.names, 2)]
    known = [bound for bound in bounds if bound is not None]
    return max(known) / SECOND / 2 if len(known) == len(bounds) and max(known) > 0 else math.inf


def advance(
    query: Query,
    before: Statistics,
    seconds: float,
    rows: Mapping[str, int],
    sizes: Mapping[str, int],
    keys: Mapping[str, KeyCounts],
    produced: Mapping[StateId, int] | None,
) -> Statistics:
    """The statistics after an epoch of so many seconds of event time.

    ``produced`` are the rows that a plan, the same as before, produced alone; None if two did, or another.
    """
    constant = half_window(query)
    fade = math.exp(-seconds / constant)
    # What came during the epoch has faded by a part of it already.
    fresh = constant * (1 - fade) / seconds if seconds > 0 and constant < math.inf else 1.0
    streams = {}
    for name in query.names:
        old = before.streams.get(name, StreamStatistics())
        columns = [key_column(name, c.id) for c in query.classes if name in c.streams]
        streams[name] = StreamStatistics(
            rows=old.rows * fade + rows.get(name, 0) * fresh,
            bytes=old.bytes * fade + sizes.get(name, 0) * fresh,
            keys={
                column: _add(old.keys.get(column, KeyStatistics()), keys.get(column), fade, fresh)
                for column in columns
            },
        )
    hot = {c.id: _hot_keys(query, c.id, before, streams, keys) for c in query.classes}
    for name, stream in streams.items():
        trimmed = {
            key_column(name, c.id): _trim(stream.keys[key_column(name, c.id)], hot[c.id])
            for c in query.classes
            if name in c.streams
        }
        streams[name] = StreamStatistics(stream.rows, stream.bytes, trimmed)
    return Statistics(
        seconds=before.seconds * fade + seconds * fresh,
        elapsed=before.elapsed + seconds,
        epochs=before.epochs * fade + fresh,
        streams=streams,
        frequent_keys=hot,
        produced={} if produced is None else _faded(before.produced, produced, fade, fresh),
        observed_seconds=0.0 if produced is None else before.observed_seconds * fade + seconds * fresh,
    )


def _faded(
    before: Mapping[StateId, float], produced: Mapping[StateId, int], fade: float, fresh: float
) -> dict[StateId, float]:
    states = dict.fromkeys([*before, *produced])
    return {s: before.get(s, 0.0) * fade + produced.get(s, 0) * fresh for s in states}


def samplings(query: Query, statistics: Statistics) -> dict[str, Sampling]:
    """Which keys the next epoch counts."""
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


def _add(old: KeyStatistics, new: KeyCounts | None, fade: float, fresh: float) -> KeyStatistics:
    keys, faded = arrays(old)
    weights = faded * fade
    threshold = old.threshold
    if new is not None:
        threshold = min(threshold, new.threshold)
        keys = np.concatenate([keys, np.frombuffer(new.keys, "<u8")])
        weights = np.concatenate([weights, np.frombuffer(new.counts, "<f8") * fresh])
    keys, where = np.unique(keys, return_inverse=True)
    together = np.bincount(where, weights, len(keys)).astype("<f8")
    return KeyStatistics(threshold, keys.tobytes(), together.tobytes())


def _hot_keys(
    query: Query,
    key_class: int,
    before: Statistics,
    streams: Mapping[str, StreamStatistics],
    counted: Mapping[str, KeyCounts],
) -> bytes:
    """The keys of which some stream has a large share, the largest shares first if there are too many."""
    known = set(np.frombuffer(before.frequent_keys.get(key_class, b""), "<u8").tolist())
    shares: dict[int, float] = {}
    for name in (n for n in query.names if n in query.classes[key_class].streams):
        column = key_column(name, key_class)
        rows = max(streams[name].rows, 1e-9)
        keys, weights = arrays(streams[name].keys[column])
        for place in np.flatnonzero(weights >= rows * _SHARE / 2).tolist():
            key, share = int(keys[place]), float(weights[place]) / rows
            if share >= _SHARE or key in known:
                shares[key] = max(shares.get(key, 0.0), share)
        if column in counted:
            for key in np.frombuffer(counted[column].frequent, "<u8").tolist():
                shares[key] = max(shares.get(key, 0.0), _SHARE)
    best = sorted(shares, key=lambda key: (-shares[key], key))[:FREQUENT_KEYS]
    return np.array(sorted(best), "<u8").tobytes()


def _trim(keys: KeyStatistics, hot: bytes) -> KeyStatistics:
    """Forget what has faded, and all but so many keys with the smallest hashes."""
    hashes, weights = arrays(keys)
    is_hot = np.isin(hashes, np.frombuffer(hot, "<u8"))
    place = fractions(hashes)
    kept = is_hot | ((weights >= _FORGOTTEN) & (place < keys.threshold))
    threshold = keys.threshold
    cold = np.sort(place[kept & ~is_hot])
    if len(cold) > KEYS:
        threshold = max(float(cold[KEYS]), MIN_SAMPLED_SHARE)
        kept &= is_hot | (place < threshold)
    elif len(cold) < KEYS // 8:
        # Fewer keys than there is room for: more are sampled from now on. Until they have come as often as
        # the others, they are thought rarer than they are.
        threshold = min(1.0, 2 * threshold)
    return KeyStatistics(threshold, hashes[kept].tobytes(), weights[kept].tobytes())
