"""Estimates: how many rows the join of any streams produces and stores, from statistics.

Streams that share a key class are joined in the sample (``sample_join.py``). A sample cannot tell whether
keys of several classes are correlated, nor how many rows a condition other than an equality leaves. That is
guessed, until the running plan has produced rows of the join or of a part of it: these correct the guess.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from midstream.adapt.sample_join import SampleJoin
from midstream.adapt.statistics import decay_seconds
from midstream.adapt.window_model import WindowModel
from midstream.query.clauses import Residual
from midstream.query.query import Query
from midstream.state.statistics import Statistics

Streams = frozenset[str]

# The share of rows that a condition leaves, as long as it has not been observed: that of System R.
_CONDITION_SELECTIVITY = 1 / 3
# The relative error of a guess: of what a condition leaves, or that keys of two classes are independent.
_GUESS_ERROR = 1.0
# Rows that a plan has produced count once it was observed for one and a half windows. These are three time
# constants, in which the decayed seconds of observation come to 1 - exp(-3) of the most that they can be.
_MIN_OBSERVED_SHARE = 0.95
# Below this error the sample is not corrected: when streams change, produced rows lag behind it.
_MAX_UNCORRECTED_ERROR = 1.0
# Rows per second; numbers in a manifest must be finite.
_MAX_RATE = 1e60
# Rows produced of a part of a join correct the estimate by this factor at most.
_MAX_CORRECTION = 100.0
# Added to estimated and to produced rows before they are compared, so that few rows prove little.
_PRIOR_ROWS = 3.0
# Stands for zero where something is divided by it.
_TINY = 1e-9

SURE_FACTOR = 1.5
"""An estimate is sure if the true value is at most this many times as large or as small."""


@dataclass(frozen=True)
class Estimate:
    """A value, and how far from the truth it may be."""

    value: float
    error: float
    """The standard deviation of the value's logarithm; for small errors, the relative standard error."""

    @property
    def confidence(self) -> float:
        """How probable it is that the true value is within a factor of ``SURE_FACTOR``."""
        return math.erf(math.log(SURE_FACTOR) / max(self.error, _TINY) / math.sqrt(2))


@dataclass(frozen=True)
class _Clusters:
    """Clusters of rows in time, of which each key class joins some: what that means for windows.

    One row of each of n streams is within a window of all others in n W^(n-1) ways. Classes that join two
    streams each allow (2 W)^(n-1) ways, which are more.
    """

    all: float = 1.0
    of_classes: float = 1.0

    def joined(self, clusters: float) -> _Clusters:
        """With a class that joins so many clusters; they have one in common with those before."""
        return _Clusters(self.all + clusters - 1, self.of_classes * clusters)

    @property
    def factor(self) -> float:
        """The ways in which all are within a window, per way that the classes allow."""
        return self.all / self.of_classes


class Estimator:
    """Rates and sizes of the joins of a query's streams."""

    def __init__(self, query: Query, statistics: Statistics) -> None:
        self.query = query
        self.statistics = statistics
        self._seconds = max(statistics.seconds, _TINY)
        self._window_model = WindowModel(query, max(statistics.elapsed, 1.0))
        self._samples = {
            c.id: SampleJoin(query, c.id, statistics, self._window_model)
            for c in query.classes
            if len(c.streams) > 1
        }
        self._class_streams = [(c.id, c.streams) for c in query.classes]
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

    def guessed_conditions(self, streams: Iterable[str]) -> int:
        """The conditions of a join whose effect is guessed: until it has been observed, all of them."""
        members = frozenset(streams)
        return 0 if members in self._observed_rates else len(self._conditions(members))

    def selectivity(self, streams: Iterable[str]) -> Estimate:
        """The share of the combinations of rows within all windows that match."""
        members = frozenset(streams)
        estimate = self._from_sample(members)
        return Estimate(estimate.value / max(self._all_combinations(members), _TINY), estimate.error)

    def _all_combinations(self, members: Streams) -> float:
        """The combinations of rows within all windows, per second, whether or not they match."""
        # In a fixed order, here and below: sums of the same numbers must be the same in every process.
        rates = [self.statistics.streams[name].rows / self._seconds for name in sorted(members)]
        return min(math.prod(rates) * self._window_model.combinations(members), _MAX_RATE)

    def _from_sample(self, members: Streams) -> Estimate:
        """The rate of a join: all combinations of rows, by the share of them that each key class leaves.

        If keys of several classes are independent, their shares multiply. But rows that come together by
        one key are as one row to the others: they are within each other's windows as often as it is.
        """
        joined = [(i, c & members) for i, c in self._class_streams if len(c & members) > 1]
        alone = members.difference(*(streams for _, streams in joined))
        rate, error = self._all_combinations(members), math.hypot(*map(self._rate_error, sorted(alone)))
        together, spread_out = _Clusters(), _Clusters()
        connected: list[Streams] = [frozenset((name,)) for name in sorted(members)]
        for key_class, streams in joined:
            matching = self._samples[key_class].matching(streams)
            rate *= matching.rate / max(self._all_combinations(streams), _TINY)
            error = math.hypot(error, matching.error)
            touched = [group for group in connected if group & streams]
            if len(touched) == len(streams):
                together = together.joined(1 + (len(streams) - 1) * matching.spread)
                spread_out = spread_out.joined(len(streams))
            connected = [group for group in connected if group not in touched] + [streams.union(*touched)]
        rate *= together.joined(len(connected)).factor / spread_out.joined(len(connected)).factor
        # Keys of different classes may be correlated.
        conditions = self._conditions(members)
        rate *= _CONDITION_SELECTIVITY ** len(conditions)
        guesses = max(len(joined) - 1, 0) + len(conditions)
        return Estimate(min(rate, _MAX_RATE), error + _GUESS_ERROR * guesses)

    def _rate_error(self, name: str) -> float:
        """The error of the rate of a stream, whose rows come by chance."""
        return _chance_error(self.statistics.streams[name].rows)

    def _conditions(self, members: Streams) -> list[Residual]:
        return [r for r in self.query.residuals if len(r.streams) > 1 and r.streams <= members]

    def _corrected(self, members: Streams, estimate: Estimate) -> Estimate:
        """The estimate, corrected by the rows produced of the join or of its largest part."""
        parts = [part for part in self._observed_rates if part <= members and len(part) > 1]
        if not parts or estimate.error < _MAX_UNCORRECTED_ERROR:
            return estimate
        part = max(parts, key=lambda p: (len(p), sorted(p)))
        observed = self._observed_rates[part]
        if part == members:
            return Estimate(observed, _chance_error(observed * self.statistics.observed_seconds))
        estimated = self._from_sample(part).value
        prior = _PRIOR_ROWS / max(self.statistics.observed_seconds, _TINY)
        factor = (observed + prior) / (estimated + prior)
        factor = min(max(factor, 1 / _MAX_CORRECTION), _MAX_CORRECTION)
        return Estimate(estimate.value * factor, estimate.error)

    @cached_property
    def _observed_rates(self) -> dict[Streams, float]:
        """The rates of the joins that the running plan produces, if it has run long enough."""
        statistics = self.statistics
        if statistics.observed_seconds < _MIN_OBSERVED_SHARE * decay_seconds(self.query):
            return {}
        return {
            frozenset(state.streams): rows / statistics.observed_seconds
            for state, rows in statistics.produced.items()
        }


def _chance_error(faded_rows: float) -> float:
    """The relative error of a number of rows: those that fade tell as much as twice as many in full."""
    return 1 / math.sqrt(max(2 * faded_rows, _TINY))
