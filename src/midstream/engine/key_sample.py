"""Samples of keys: how many new rows of a stream have each key, counted while they are ingested.

All streams sample the same keys, those with a small hash, so that samples of several streams can be joined: a
key that is in one sample is in that of every other stream that has it. Frequent keys, which a sample would
miss or overrate, are always counted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from midstream.engine.arrays import as_array
from midstream.engine.encode import HASH
from midstream.engine.error_context import error_context
from midstream.engine.hashing import Hashes, hash_values
from midstream.plan.layout import Key, key_column
from midstream.query.query import Query

# About how many rows are inspected to find frequent keys, and how many of them must have a key.
_INSPECTED_ROWS = 2048
_MIN_FREQUENT_ROWS = 8

_FRACTION_SCALE = 1 << 32
MIN_SAMPLED_SHARE = 1 / _FRACTION_SCALE
"""No smaller share of keys is sampled."""

# Sampled keys that a partition counts of a class in an epoch, without those that are always counted.
_MAX_SAMPLED_KEYS = 1024


@dataclass(frozen=True)
class Sampling:
    """Which keys of a stream and a key class are counted."""

    threshold: float = 1.0
    """The share of keys that is sampled: those whose hash has a fraction below it."""
    always_counted: bytes = b""
    """Hashes of keys that are counted even if they are not sampled."""


class KeyCounts(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How many rows of an epoch, in one engine partition, have each key."""

    threshold: float = 1.0
    keys: bytes = b""
    counts: bytes = b""
    frequent: bytes = b""
    """Hashes of keys that many of the rows have, counted or not."""

    def __add__(self, other: KeyCounts) -> KeyCounts:
        # The same key may be in both; readers add up its counts.
        return KeyCounts(
            min(self.threshold, other.threshold),
            self.keys + other.keys,
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
    for key_class in query.classes:
        name = key_column(stream, key_class.id)
        if stream not in key_class.streams or len(key_class.streams) < 2:
            continue
        # If rows are placed by this class alone, their hashes are those of its keys.
        is_hashed = placed_by == (key_class.id,)
        with error_context(columns=key_class.of(stream)):
            hashes = as_array(table.column(HASH)) if is_hashed else hash_values(table.column(name))
        counts[name] = _count(hashes, sampling.get(name, Sampling()))
    return counts


def _count(hashes: Hashes, sampling: Sampling) -> KeyCounts:
    threshold = sampling.threshold
    sampled, counts = np.unique(hashes[fractions(hashes) < threshold], return_counts=True)
    if len(sampled) > _MAX_SAMPLED_KEYS:
        threshold = max(
            float(np.partition(fractions(sampled), _MAX_SAMPLED_KEYS)[_MAX_SAMPLED_KEYS]), MIN_SAMPLED_SHARE
        )
        still_sampled = fractions(sampled) < threshold
        sampled, counts = sampled[still_sampled], counts[still_sampled]
    always = np.frombuffer(sampling.always_counted, np.uint64)
    if len(always):
        position = np.minimum(np.searchsorted(always, hashes), len(always) - 1)
        rows = np.bincount(position[always[position] == hashes], minlength=len(always))
        others = ~np.isin(sampled, always)
        sampled, counts = np.concatenate([sampled[others], always]), np.concatenate([counts[others], rows])
    inspected, rows_with = np.unique(hashes[:: max(1, len(hashes) // _INSPECTED_ROWS)], return_counts=True)
    frequent = inspected[rows_with >= _MIN_FREQUENT_ROWS]
    return KeyCounts(threshold, sampled.tobytes(), counts.astype(np.float64).tobytes(), frequent.tobytes())
