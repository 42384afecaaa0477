"""Samples of keys: how many new rows of a stream have each key and when, counted while they are ingested.

All streams sample the same keys, those with a small hash, so that samples of several streams can be joined: a
key that is in one sample is in that of every other stream that has it. Frequent keys, which a sample would
miss or overrate, are always counted. Rows of a key that are near in time are one entry, with their mean time.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from midstream.engine.arrays import as_array
from midstream.engine.encode import HASH, time_column
from midstream.engine.error_context import error_context
from midstream.engine.event_times import Times, robust_end
from midstream.engine.hashing import Hashes, hash_values
from midstream.plan.layout import Key, key_column
from midstream.query.query import Query

# About how many rows are inspected to find frequent keys, and how many of them must have a key.
_INSPECTED_ROWS = 2048
_MIN_FREQUENT_ROWS = 8

_FRACTION_SCALE = 1 << 32
MIN_SAMPLED_SHARE = 1 / _FRACTION_SCALE
"""No smaller share of keys is sampled."""

SAMPLED_WINDOWS = 2
"""The windows of event time that samples cover: in the last one, rows have all that they match."""

# Rows that are looked at first to see how many keys there are.
_PREVIEWED_ROWS = 1 << 15
# Entries of sampled keys that a partition counts of a class in an epoch, without those always counted.
_MAX_SAMPLED_ENTRIES = 1024

Rows = npt.NDArray[np.float64]

# An odd number with no pattern, 2^64 by the golden ratio: multiples of it are far from each other.
_BUCKET_FACTOR = np.uint64(0x9E3779B97F4A7C15)


@dataclass(frozen=True)
class Sampling:
    """Which keys of a stream and a key class are counted."""

    threshold: float = 1.0
    """The share of keys that is sampled: those whose hash has a fraction below it."""
    always_counted: bytes = b""
    """Hashes of keys that are counted even if they are not sampled."""
    bucket: int = 1
    """Rows of a key in the same stretch of time, so many microseconds long, are one entry."""
    window: int | None = None
    """In microseconds; rows are counted from two windows before the end of the epoch to one after it, and
    without a window all of them."""


class KeyCounts(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How many rows of an epoch, in one engine partition, have each key at about which time."""

    threshold: float = 1.0
    keys: bytes = b""
    times: bytes = b""
    counts: bytes = b""
    frequent: bytes = b""
    """Hashes of keys that many of the rows have, counted or not."""

    def __add__(self, other: KeyCounts) -> KeyCounts:
        # The same key may be in both; readers add up its counts.
        return KeyCounts(
            min(self.threshold, other.threshold),
            self.keys + other.keys,
            self.times + other.times,
            self.counts + other.counts,
            self.frequent + other.frequent,
        )


def fractions(keys: Hashes) -> npt.NDArray[np.float64]:
    """Hashes as fractions from 0 to 1, by their lower half: rows are placed by the upper half."""
    return (keys & np.uint64(_FRACTION_SCALE - 1)).astype(np.float64) / _FRACTION_SCALE


def count_keys(
    query: Query, stream: str, placed_by: Key, table: pa.Table, sampling: Mapping[str, Sampling]
) -> dict[str, KeyCounts]:
    """The key counts of rows of a stream, for each of its key columns."""
    counts = {}
    times = as_array(table.column(time_column(stream)))
    for key_class in query.classes:
        name = key_column(stream, key_class.id)
        if stream not in key_class.streams or len(key_class.streams) < 2:
            continue
        # If rows are placed by this class alone, their hashes are those of its keys.
        is_hashed = placed_by == (key_class.id,)
        with error_context(columns=key_class.of(stream)):
            hashes = as_array(table.column(HASH)) if is_hashed else hash_values(table.column(name))
        counts[name] = _count(hashes, times, sampling.get(name, Sampling()))
    return counts


def is_recent(times: Times, present: int, position: int, window: int) -> npt.NDArray[np.bool_]:
    """Whether rows are of the time that samples cover, if their stream has come to a position."""
    return (times >= present - SAMPLED_WINDOWS * window) & (times <= position + window)


def merge_entries(
    keys: Hashes, times: Times, rows: Rows, buckets: npt.NDArray[np.int64]
) -> tuple[Hashes, Times, Rows]:
    """Entries in ascending order of key and time; those of the same key and bucket become one."""
    if not len(keys):
        return keys, times, rows
    # Sorting by one number is several times as fast as by two. Of hashes, no two sums are the same by chance.
    combined = keys + buckets.view(np.uint64) * _BUCKET_FACTOR
    order = np.argsort(combined)
    combined, keys, times, rows = combined[order], keys[order], times[order], rows[order]
    starts = np.flatnonzero(np.append(True, combined[1:] != combined[:-1]))
    sums = np.add.reduceat(rows, starts)
    # As distances from the first time of the entry, which are small, so that their mean is exact.
    distances = times - np.repeat(times[starts], np.diff(starts, append=len(times)))
    means = times[starts] + np.rint(np.add.reduceat(distances * rows, starts) / sums).astype(np.int64)
    in_order = np.lexsort((means, keys[starts]))
    return keys[starts][in_order], means[in_order], sums[in_order]


def _count(hashes: Hashes, times: Times, sampling: Sampling) -> KeyCounts:
    inspected, rows_with = np.unique(hashes[:: max(1, len(hashes) // _INSPECTED_ROWS)], return_counts=True)
    frequent = inspected[rows_with >= _MIN_FREQUENT_ROWS]
    if sampling.window is not None and len(times):
        end = robust_end(times)
        recent = is_recent(times, end, end, sampling.window)
        if not recent.all():
            hashes, times = hashes[recent], times[recent]
    always = np.frombuffer(sampling.always_counted, np.uint64)
    threshold, share = sampling.threshold, fractions(hashes)
    if len(hashes) > _PREVIEWED_ROWS:
        # If some of the rows have more keys than are kept, the others need not be sorted.
        preview = threshold * _PREVIEWED_ROWS / len(hashes)
        keys, _, _ = _entries(hashes, times, share < preview, sampling.bucket)
        lower = lower_threshold(keys, always, preview, _MAX_SAMPLED_ENTRIES)
        threshold = lower if lower < preview else threshold
    counted = share < threshold
    if len(always):
        counted |= always[np.minimum(np.searchsorted(always, hashes), len(always) - 1)] == hashes
    keys, times, rows = _entries(hashes, times, counted, sampling.bucket)
    threshold = lower_threshold(keys, always, threshold, _MAX_SAMPLED_ENTRIES)
    kept = (fractions(keys) < threshold) | np.isin(keys, always)
    return KeyCounts(
        threshold, keys[kept].tobytes(), times[kept].tobytes(), rows[kept].tobytes(), frequent.tobytes()
    )


def _entries(
    hashes: Hashes, times: Times, counted: npt.NDArray[np.bool_], bucket: int
) -> tuple[Hashes, Times, Rows]:
    keys, times = hashes[counted], times[counted]
    return merge_entries(keys, times, np.ones(len(keys)), times // bucket)


def lower_threshold(keys: Hashes, always: Hashes, threshold: float, most: int) -> float:
    """The threshold, lowered so far that no more than so many entries of keys not always kept are below."""
    others = fractions(keys[~np.isin(keys, always)])
    others = others[others < threshold]
    if len(others) <= most:
        return threshold
    return max(float(np.partition(others, most)[most]), MIN_SAMPLED_SHARE)
