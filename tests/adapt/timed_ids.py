"""Streams of ids that belong together in time: each id comes about once in each stream, with delays."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from midstream.adapt.statistics import advance, samplings
from midstream.engine.encode import time_column
from midstream.engine.event_times import common_range, robust_range
from midstream.engine.key_sample import KeyCounts, count_keys
from midstream.plan.layout import key_column
from midstream.query.query import Query
from midstream.state.statistics import Statistics
from midstream.values import MICROS_PER_SECOND

Integers = npt.NDArray[np.int64]
PARTITIONS = 2


@dataclass(frozen=True)
class Rows:
    """Rows of a stream: event times in microseconds, ids, and the times in seconds when they arrive."""

    times: Integers
    ids: Integers
    arrivals: npt.NDArray[np.float64]

    def with_ahead(self, every: float, ahead: float) -> Rows:
        """The same with one more row every so many seconds, which nothing matches, ahead of its time."""
        arrivals = np.arange(every / 2, self.arrivals.max(), every)
        times = ((arrivals + ahead) * MICROS_PER_SECOND).astype(np.int64)
        return Rows(
            np.concatenate([self.times, times]),
            np.concatenate([self.ids, -1 - np.arange(len(times))]),
            np.concatenate([self.arrivals, arrivals]),
        )


@dataclass(frozen=True)
class TimedIds:
    """The rows of all streams, over some seconds."""

    rows: Mapping[str, Rows]
    seconds: float

    def history(self, query: Query, epoch: float) -> Iterator[Statistics]:
        """The statistics after each epoch of so many seconds; rows come to partitions by their ids."""
        statistics = Statistics()
        for number in range(round(self.seconds / epoch)):
            sampling = samplings(query, statistics)
            keys: dict[str, KeyCounts] = {}
            ranges, sizes = {}, {}
            for name, rows in self.rows.items():
                is_new = (rows.arrivals >= number * epoch) & (rows.arrivals < (number + 1) * epoch)
                times, ids = rows.times[is_new], rows.ids[is_new]
                parts = []
                for partition in range(PARTITIONS):
                    here = ids % PARTITIONS == partition
                    if not here.any():
                        continue
                    table = pa.table({time_column(name): times[here], key_column(name, 0): ids[here]})
                    for column, counts in count_keys(query, name, (), table, sampling).items():
                        keys[column] = KeyCounts.merge([keys.get(column, KeyCounts()), counts])
                    parts.append(robust_range(times[here], query.longest_window))
                ranges[name], sizes[name] = common_range(parts, query.longest_window), 40 * len(ids)
            statistics = advance(query, statistics, ranges=ranges, sizes=sizes, keys=keys, produced=None)
            yield statistics

    def statistics(self, query: Query, epoch: float) -> Statistics:
        """The statistics after the last epoch."""
        return list(self.history(query, epoch))[-1]

    def true_rate(self, names: str, window: float, seconds: float) -> float:
        """Results per second, of ids that come once in a stream, whose last row is of the last seconds."""
        ids = self.rows[names[0]].ids
        for name in names[1:]:
            ids = np.intersect1d(ids, self.rows[name].ids)
        times = np.stack([_times_of(self.rows[name], ids) for name in names]) / MICROS_PER_SECOND
        newest, oldest = times.max(axis=0), times.min(axis=0)
        is_result = (newest - oldest <= window) & (newest < self.seconds) & (newest >= self.seconds - seconds)
        return float(is_result.sum()) / seconds


def _times_of(rows: Rows, ids: Integers) -> Integers:
    order = np.argsort(rows.ids)
    return rows.times[order][np.searchsorted(rows.ids[order], ids)]


def draw_ids(
    names: str,
    rate: float,
    seconds: float,
    *,
    delay: float = 0.0,
    missing: float = 0.0,
    at_random: bool = True,
    seed: int = 0,
) -> TimedIds:
    """Ids at a rate, in the first stream at once and in each of the others after a delay of this mean.

    In each stream some ids are missing. Ids come at random times or, if not, at even distances.
    """
    random = np.random.default_rng(seed)
    count = round(rate * seconds)
    starts = np.sort(random.uniform(0, seconds, count)) if at_random else np.arange(count) / rate
    rows = {}
    for name in names:
        times = starts + (random.exponential(delay, count) if delay and name != names[0] else 0.0)
        comes = random.random(count) >= missing
        micros = np.rint(times[comes] * MICROS_PER_SECOND).astype(np.int64)
        rows[name] = Rows(micros, np.flatnonzero(comes), micros / MICROS_PER_SECOND)
    return TimedIds(rows, seconds)
