"""Estimates: how many rows any join of some streams makes and holds, from statistics.

Streams that share a key class are joined in the sample: over the sampled keys, the product of the shares
that each stream has of a key, scaled up. What that cannot tell, whether keys of several classes go together
and how many rows a condition leaves that is no equality, is guessed, until the running plan has made rows of
the join itself or of a part of it: then what it made counts.
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
from midstream.plan.layout import key_column, streams_of
from midstream.query.query import Query
from midstream.state.statistics import Statistics

Streams = frozenset[str]

# The share of rows that a condition leaves, as long as nobody has seen it: that of System R.
_CONDITION = 1 / 3
# What a plan made is believed once it was watched for one and a half windows, of which this much counts.
_MIN_OBSERVED_SHARE = 0.95
# An estimate that is surer than this needs no correction.
_CONFIDENT = 0.5
# No estimate is larger: numbers in a manifest must be finite.
_LARGEST_RATE = 1e60
# What was seen corrects an estimate by this factor at most.
_CORRECTION = 100.0


@dataclass(frozen=True)
class Estimate:
    """A figure, and how sure it is: from 0, a guess, to 1, known."""

    value: float
    confidence: float


class Estimator:
    """Rates and sizes of the joins of a query's streams."""

    def __init__(self, query: Query, statistics: Statistics) -> None:
        self.query = query
        self.statistics = statistics
        self._seconds = max(statistics.seconds, 1e-9)
        self._shares = {c.id: _Shares(query, c.id, statistics) for c in query.classes}
        self._known: dict[Streams, Estimate] = {}
        self.windows = WindowModel(query, max(statistics.elapsed, 1.0))

    def rate(self, streams: Iterable[str]) -> float:
        """Rows of the join that come into being in a second of event time."""
        return self.estimate(streams).value

    def rate_by_newest(self, streams: Iterable[str]) -> float:
        """Those of them whose newest component is of one particular stream: each is as often the newest."""
        members = frozenset(streams)
        return self.rate(members) / len(members)

    def live_rows(self, streams: Iterable[str]) -> float:
        """Rows of the join that can still become part of a result, at any time."""
        members = frozenset(streams)
        lifetime = self.windows.lifetime(members)
        # A row is live while its oldest component is; with one window, on average for a share of it.
        alive = max(1 / len(members), 1 - self.windows.span(members) / max(lifetime, 1e-9))
        return self.stored_rows(members) * alive

    def stored_rows(self, streams: Iterable[str]) -> float:
        """Rows of the join in its state, which has them until their newest component has expired."""
        members = frozenset(streams)
        return self.rate(members) * self.windows.lifetime(members)

    def slices(self, streams: Iterable[str]) -> float:
        """Slices of a state in a partition, each of which a probe searches; compaction merges them by age."""
        return math.log2(2 + self.windows.lifetime(frozenset(streams)) * self.epochs_per_second)

    def row_bytes(self, streams: Iterable[str]) -> float:
        """Bytes of payload that the rows of a join stand for."""
        known = self.statistics.streams
        return sum(known[name].bytes / max(known[name].rows, 1e-9) for name in sorted(streams))

    @property
    def epochs_per_second(self) -> float:
        """Epochs in a second of event time."""
        return self.statistics.epochs / self._seconds

    def estimate(self, streams: Iterable[str]) -> Estimate:
        """The rate of a join, and how sure it is."""
        members = frozenset(streams)
        if members not in self._known:
            self._known[members] = self._corrected(members, self._from_sample(members))
        return self._known[members]

    def selectivity(self, streams: Iterable[str]) -> Estimate:
        """The share of all combinations of rows, near enough in time, that join."""
        members = frozenset(streams)
        share, doubt = 1.0, 0.0
        joined = [c for c in self.query.classes if len(c.streams & members) > 1]
        for key_class in joined:
            one = self._shares[key_class.id].joined(key_class.streams & members)
            share *= one.value
            doubt += 1 / max(one.confidence, 1e-3) - 1
        # Nobody knows whether keys of different classes go together.
        doubt += max(len(joined) - 1, 0)
        for residual in self.query.residuals:
            if len(residual.streams) > 1 and residual.streams <= members:
                share *= _CONDITION
                doubt += 1.0
        return Estimate(share, 1 / (1 + doubt))

    def _from_sample(self, members: Streams) -> Estimate:
        known = self.statistics.streams
        # In a fixed order, here and below: sums of the same numbers must be the same in every process.
        each = [known[name].rows / self._seconds for name in sorted(members)]
        if len(each) == 1:
            return Estimate(each[0], 1.0)
        selectivity = self.selectivity(members)
        value = selectivity.value * math.prod(each) * self.windows.combinations(members)
        return Estimate(min(value, _LARGEST_RATE), selectivity.confidence)

    def _corrected(self, members: Streams, estimate: Estimate) -> Estimate:
        """The estimate, by what the running plan has made of the join or of its largest part."""
        parts = [part for part in self._seen if part <= members and len(part) > 1]
        # When streams change, what was made lags behind the sample: it counts where the sample cannot tell.
        if not parts or estimate.confidence > _CONFIDENT:
            return estimate
        part = max(parts, key=lambda p: (len(p), sorted(p)))
        seen = self._seen[part]
        if part == members:
            return Estimate(seen, 1.0)
        thought = self._from_sample(part).value
        # A little of both is added, so that hardly any rows prove hardly anything.
        little = 3 / max(self.statistics.observed_seconds, 1e-9)
        factor = (seen + little) / (thought + little)
        factor = min(max(factor, 1 / _CORRECTION), _CORRECTION)
        return Estimate(estimate.value * factor, estimate.confidence)

    @cached_property
    def _seen(self) -> dict[Streams, float]:
        """The rates of the joins that the running plan makes, if it has run long enough."""
        statistics = self.statistics
        if statistics.observed_seconds < _MIN_OBSERVED_SHARE * half_window(self.query):
            return {}
        return {
            frozenset(streams_of(s)): made / statistics.observed_seconds
            for s, made in statistics.made.items()
        }


class _Shares:
    """For one key class: of each counted key, the share of each stream's rows that have it."""

    def __init__(self, query: Query, key_class: int, statistics: Statistics) -> None:
        names = [name for name in query.names if name in query.classes[key_class].streams]
        hot = np.frombuffer(statistics.hot.get(key_class, b""), "<u8")
        known = {n: statistics.streams[n].keys[key_column(n, key_class)] for n in names}
        counted = {n: arrays(keys) for n, keys in known.items()}
        union = np.unique(np.concatenate([keys for keys, _ in counted.values()]))
        self.thresholds = {n: keys.threshold for n, keys in known.items()}
        self.rows = {n: max(statistics.streams[n].rows, 1e-9) for n in names}
        self.is_hot = np.isin(union, hot)
        self.place = fractions(union)
        self.shares: dict[str, npt.NDArray[np.float64]] = {}
        for name, (keys, weights) in counted.items():
            column = np.zeros(len(union))
            column[np.searchsorted(union, keys)] = weights / self.rows[name]
            self.shares[name] = column

    def joined(self, members: Streams) -> Estimate:
        """The share of combinations with equal keys."""
        threshold = min(self.thresholds[name] for name in members)
        sampled = ~self.is_hot & (self.place < threshold)
        both = np.ones(len(self.place))
        for name in sorted(members):
            both = both * self.shares[name]
        cold, hot = both[sampled], both[self.is_hot]
        total = float(cold.sum()) / threshold + float(hot.sum())
        if total <= 0:
            # Nothing was seen: as if half a pair had been, of rows that each were alone with their key.
            alone = math.prod(1 / self.rows[name] for name in sorted(members))
            return Estimate(alone / threshold / 2, 0.05)
        spread = math.sqrt(float((cold**2).sum()) * (1 - threshold)) / threshold
        few = math.sqrt(sum(1 / max(0.1, self.rows[name] * threshold) for name in sorted(members)))
        return Estimate(total, 1 / (1 + spread / total + few))
