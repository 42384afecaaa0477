"""Samples of keys: how many new rows of a stream have each key and when, counted while they are ingested.

All streams sample the same keys, those with a small hash, so that samples of several streams can be joined: a
key that is in one sample is in that of every other stream that has it. Frequent keys, which a sample would
miss or overrate, are always counted. Rows of a key that are near in time are one entry, with their mean time.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from midstream.engine.arrays import as_array, as_column
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
# All rows have at least as many entries as some of them. Twice as many as are kept, so that enough are left.
_MAX_PREVIEWED_ENTRIES = 2 * _MAX_SAMPLED_ENTRIES

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

    @staticmethod
    def merge(parts: Sequence[KeyCounts]) -> KeyCounts:
        """The counts of several partitions. They may have the same keys; readers add up their counts."""
        return KeyCounts(
            min(part.threshold for part in parts),
            b"".join(part.keys for part in parts),
            b"".join(part.times for part in parts),
            b"".join(part.counts for part in parts),
            b"".join(part.frequent for part in parts),
        )


def fractions(keys: Hashes) -> npt.NDArray[np.float64]:
    """Hashes as fractions from 0 to 1, by their lower half: rows are placed by the upper half."""
    return (keys & np.uint64(_FRACTION_SCALE - 1)).astype(np.float64) / _FRACTION_SCALE


def is_sampled(keys: Hashes, threshold: float) -> npt.NDArray[np.bool_]:
    """Whether hashes have a fraction below a threshold."""
    # By integers: as fractions, all of them would be converted.
    return (keys & np.uint64(_FRACTION_SCALE - 1)) < np.uint64(math.ceil(threshold * _FRACTION_SCALE))


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
    keys: Hashes, times: Times, rows: Rows | None, buckets: npt.NDArray[np.int64]
) -> tuple[Hashes, Times, Rows]:
    """Entries in ascending order of key and time; those of the same key and bucket become one.

    ``rows`` are the rows of each; None if each is a row.
    """
    if not len(keys):
        return keys, times, np.empty(0)
    # Grouping by one number is much faster than by two. Of hashes, no two sums are the same by chance.
    combined = as_column(keys + buckets.view(np.uint64) * _BUCKET_FACTOR).dictionary_encode()
    group, groups = as_array(combined.indices).astype(np.intp), len(combined.dictionary)
    group_keys = np.empty(groups, np.uint64)
    group_keys[group] = keys
    some_time = np.empty(groups, np.int64)
    some_time[group] = times
    # As distances from one of the entry's times, which are small, so that their mean is exact.
    distances = times - some_time[group]
    sums = np.bincount(group, rows, groups).astype(np.float64)
    totals = np.bincount(group, distances if rows is None else distances * rows, groups)
    means = some_time + np.rint(totals / sums).astype(np.int64)
    in_order = np.lexsort((means, group_keys))
    return group_keys[in_order], means[in_order], sums[in_order]


def _count(hashes: Hashes, times: Times, sampling: Sampling) -> KeyCounts:
    frequent = _frequent(hashes)
    hashes, times = _recent(hashes, times, sampling.window)
    always = np.frombuffer(sampling.always_counted, np.uint64)
    threshold = sampling.threshold
    if len(hashes) > _PREVIEWED_ROWS:
        # If these few rows have more keys than are kept, most of the others need not be counted.
        some = slice(None, None, len(hashes) // _PREVIEWED_ROWS)
        keys, _, _ = _entries(hashes[some], times[some], is_sampled(hashes[some], threshold), sampling.bucket)
        others = int(np.count_nonzero(~np.isin(keys, always)))
        if others > _MAX_PREVIEWED_ENTRIES:
            threshold = max(threshold * _MAX_PREVIEWED_ENTRIES / others, MIN_SAMPLED_SHARE)
    counted = is_sampled(hashes, threshold)
    for key in always if threshold < 1.0 else ():
        counted |= hashes == key
    keys, times, rows = _entries(hashes, times, counted, sampling.bucket)
    threshold = lower_threshold(keys, always, threshold, _MAX_SAMPLED_ENTRIES)
    if threshold < 1.0:
        kept = is_sampled(keys, threshold) | np.isin(keys, always)
        keys, times, rows = keys[kept], times[kept], rows[kept]
    return KeyCounts(threshold, keys.tobytes(), times.tobytes(), rows.tobytes(), frequent.tobytes())


def _frequent(hashes: Hashes) -> Hashes:
    """The hashes that many of the inspected rows have."""
    inspected = hashes[:: max(1, len(hashes) // _INSPECTED_ROWS)]
    if len(inspected) < _MIN_FREQUENT_ROWS:
        return inspected[:0]
    values, rows = np.unique(inspected, return_counts=True)
    return values[rows >= _MIN_FREQUENT_ROWS]


def _recent(hashes: Hashes, times: Times, window: int | None) -> tuple[Hashes, Times]:
    """The rows of the time that samples cover."""
    # All of an epoch that is not longer than a window.
    if window is None or not len(times) or int(times.max()) - int(times.min()) <= window:
        return hashes, times
    end = robust_end(times)
    recent = is_recent(times, end, end, window)
    return hashes[recent], times[recent]


def _entries(
    hashes: Hashes, times: Times, counted: npt.NDArray[np.bool_], bucket: int
) -> tuple[Hashes, Times, Rows]:
    if not counted.all():
        # Several times as fast as by the mask itself.
        positions = np.flatnonzero(counted)
        hashes, times = hashes[positions], times[positions]
    return merge_entries(hashes, times, None, times // bucket)


def lower_threshold(keys: Hashes, always: Hashes, threshold: float, most: int) -> float:
    """The threshold, lowered so far that no more than so many entries of keys not always kept are below."""
    if len(keys) <= most:
        return threshold
    others = fractions(keys[~np.isin(keys, always)])
    others = others[others < threshold]
    if len(others) <= most:
        return threshold
    return max(float(np.partition(others, most)[most]), MIN_SAMPLED_SHARE)
