"""Estimates: how many rows the join of any streams produces and stores, from statistics.

Streams that share a key class are joined in the sample: over the sampled keys, the product of the shares of
each stream's rows that have the key, scaled up. A sample cannot tell whether keys of several classes are
correlated, nor how many rows a condition other than an equality leaves. That is guessed, until the running
plan has produced rows of the join or of a part of it: then these correct the guess.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from midstream.adapt.statistics import arrays, half_window
from midstream.adapt.window_model import WindowModel
from midstream.engine.key_sample import fractions
from midstream.plan.layout import key_column
from midstream.query.query import Query
from midstream.state.statistics import Statistics

Streams = frozenset[str]

# The share of rows that a condition leaves, as long as it has not been observed: that of System R.
_CONDITION_SELECTIVITY = 1 / 3
# Rows that a plan has produced count once it was observed for one and a half windows. These are three time
# constants, in which the decayed seconds of observation come to 1 - exp(-3) of the most that they can be.
_MIN_OBSERVED_SHARE = 0.95
# Above this confidence the sample is not corrected: when streams change, produced rows lag behind it.
_CONFIDENT = 0.5
# Rows per second; numbers in a manifest must be finite.
_MAX_RATE = 1e60
# Rows produced of a part of a join correct the estimate by this factor at most.
_MAX_CORRECTION = 100.0
# Added to estimated and to produced rows before they are compared, so that few rows prove little.
_PRIOR_ROWS = 3.0
# If no sampled key has rows of all streams, as many matches are assumed as cannot be ruled out.
_UNSEEN_MATCHES = 0.5
_UNSEEN_CONFIDENCE = 0.05
# Stands for zero where something is divided by it.
_TINY = 1e-9


@dataclass(frozen=True)
class Estimate:
    """A value, and how certain it is: from 0, a guess, to 1, observed."""

    value: float
    confidence: float


class Estimator:
    """Rates and sizes of the joins of a query's streams."""

    def __init__(self, query: Query, statistics: Statistics) -> None:
        self.query = query
        self.statistics = statistics
        self._seconds = max(statistics.seconds, _TINY)
        self._key_shares = {c.id: _KeyShares(query, c.id, statistics) for c in query.classes}
        self._window_model = WindowModel(query, max(statistics.elapsed, 1.0))
        self._estimates: dict[Streams, Estimate] = {}

    def rate(self, streams: Iterable[str]) -> float:
        """Rows of the join that are produced per second of event time."""
        return self.estimate(streams).value

    def rate_by_newest(self, streams: Iterable[str]) -> float:
        """Those of them whose newest component is of one particular stream: each is the newest as often."""
        members = frozenset(streams)
        return self.rate(members) / len(members)

    def live_rows(self, streams: Iterable[str]) -> float:
        """Rows of the join, at any time, that can still become part of a result."""
        members = frozenset(streams)
        lifetime = self._window_model.lifetime(members)
        # A row is live while its oldest component is; with one window, on average for a share of it.
        live_share = max(1 / len(members), 1 - self._window_model.span(members) / max(lifetime, _TINY))
        return self.stored_rows(members) * live_share

    def stored_rows(self, streams: Iterable[str]) -> float:
        """Rows of the join in its state, which stores them until their newest component has expired."""
        members = frozenset(streams)
        return self.rate(members) * self._window_model.lifetime(members)

    def slices(self, streams: Iterable[str]) -> float:
        """Slices of a state in a partition, each of which a probe searches; compaction merges them by age."""
        return math.log2(2 + self._window_model.lifetime(frozenset(streams)) * self.epochs_per_second)

    def row_bytes(self, streams: Iterable[str]) -> float:
        """Bytes of payload of a row of the join."""
        statistics = self.statistics.streams
        return sum(statistics[name].bytes / max(statistics[name].rows, _TINY) for name in sorted(streams))

    @property
    def epochs_per_second(self) -> float:
        """Epochs per second of event time."""
        return self.statistics.epochs / self._seconds

    def estimate(self, streams: Iterable[str]) -> Estimate:
        """The rate of a join, and how certain it is."""
        members = frozenset(streams)
        if members not in self._estimates:
            self._estimates[members] = self._corrected(members, self._from_sample(members))
        return self._estimates[members]

    def selectivity(self, streams: Iterable[str]) -> Estimate:
        """The share of the combinations of rows within all windows that match."""
        members = frozenset(streams)
        share, doubt = 1.0, 0.0
        joined = [c for c in self.query.classes if len(c.streams & members) > 1]
        for key_class in joined:
            matching = self._key_shares[key_class.id].matching(key_class.streams & members)
            share *= matching.value
            doubt += 1 / max(matching.confidence, 1e-3) - 1
        # Keys of different classes may be correlated.
        doubt += max(len(joined) - 1, 0)
        for residual in self.query.residuals:
            if len(residual.streams) > 1 and residual.streams <= members:
                share *= _CONDITION_SELECTIVITY
                doubt += 1.0
        return Estimate(share, 1 / (1 + doubt))

    def _from_sample(self, members: Streams) -> Estimate:
        streams = self.statistics.streams
        # In a fixed order, here and below: sums of the same numbers must be the same in every process.
        rates = [streams[name].rows / self._seconds for name in sorted(members)]
        if len(rates) == 1:
            return Estimate(rates[0], 1.0)
        selectivity = self.selectivity(members)
        rate = selectivity.value * math.prod(rates) * self._window_model.combinations(members)
        return Estimate(min(rate, _MAX_RATE), selectivity.confidence)

    def _corrected(self, members: Streams, estimate: Estimate) -> Estimate:
        """The estimate, corrected by the rows produced of the join or of its largest part."""
        parts = [part for part in self._observed_rates if part <= members and len(part) > 1]
        if not parts or estimate.confidence > _CONFIDENT:
            return estimate
        part = max(parts, key=lambda p: (len(p), sorted(p)))
        observed = self._observed_rates[part]
        if part == members:
            return Estimate(observed, 1.0)
        estimated = self._from_sample(part).value
        prior = _PRIOR_ROWS / max(self.statistics.observed_seconds, _TINY)
        factor = (observed + prior) / (estimated + prior)
        factor = min(max(factor, 1 / _MAX_CORRECTION), _MAX_CORRECTION)
        return Estimate(estimate.value * factor, estimate.confidence)

    @cached_property
    def _observed_rates(self) -> dict[Streams, float]:
        """The rates of the joins that the running plan produces, if it has run long enough."""
        statistics = self.statistics
        if statistics.observed_seconds < _MIN_OBSERVED_SHARE * half_window(self.query):
            return {}
        return {
            frozenset(state.streams): rows / statistics.observed_seconds
            for state, rows in statistics.produced.items()
        }


class _KeyShares:
    """For one key class: the share of each stream's rows that have each counted key."""

    def __init__(self, query: Query, key_class: int, statistics: Statistics) -> None:
        names = [name for name in query.names if name in query.classes[key_class].streams]
        frequent = np.frombuffer(statistics.frequent_keys.get(key_class, b""), "<u8")
        key_statistics = {n: statistics.streams[n].keys[key_column(n, key_class)] for n in names}
        counted = {n: arrays(keys) for n, keys in key_statistics.items()}
        union = np.unique(np.concatenate([keys for keys, _ in counted.values()]))
        self._thresholds = {n: keys.threshold for n, keys in key_statistics.items()}
        self._rows = {n: max(statistics.streams[n].rows, _TINY) for n in names}
        self._is_frequent = np.isin(union, frequent)
        self._hash_fractions = fractions(union)
        self._shares: dict[str, npt.NDArray[np.float64]] = {}
        for name, (keys, weights) in counted.items():
            shares = np.zeros(len(union))
            shares[np.searchsorted(union, keys)] = weights / self._rows[name]
            self._shares[name] = shares

    def matching(self, members: Streams) -> Estimate:
        """The share of all combinations of rows that have equal keys."""
        threshold = min(self._thresholds[name] for name in members)
        is_sampled = ~self._is_frequent & (self._hash_fractions < threshold)
        products = np.ones(len(self._hash_fractions))
        for name in sorted(members):
            products = products * self._shares[name]
        cold, frequent = products[is_sampled], products[self._is_frequent]
        total = float(cold.sum()) / threshold + float(frequent.sum())
        if total <= 0:
            # One combination of rows among all that there are.
            single = math.prod(1 / self._rows[name] for name in sorted(members))
            return Estimate(_UNSEEN_MATCHES * single / threshold, _UNSEEN_CONFIDENCE)
        sampling_error = math.sqrt(float((cold**2).sum()) * (1 - threshold)) / threshold / total
        sampled_rows = (max(0.1, self._rows[name] * threshold) for name in sorted(members))
        counting_error = math.sqrt(sum(1 / rows for rows in sampled_rows))
        return Estimate(total, 1 / (1 + sampling_error + counting_error))
