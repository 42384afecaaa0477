"""Samples of keys: which keys a stream brings how often, as a by-product of taking its rows in.

All streams sample the same keys, those with a small hash, so that samples of several streams can be joined:
a key that is in one of them is in the others if it is there at all. A few frequent keys, which a sample
would miss or overrate, are counted in any case.
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

# Rows that are looked at to find frequent keys, and how often a key must be among them.
_LOOKED_AT = 2048
_OFTEN = 8
_SCALE = 1 << 32
MIN_SAMPLED_SHARE = 1 / _SCALE
"""No smaller share of keys is sampled."""

# Keys that a partition counts of a class in an epoch at most, frequent ones aside.
_MAX_SAMPLED_KEYS = 1024


@dataclass(frozen=True)
class Sampling:
    """Which keys of a stream's class are counted."""

    threshold: float = 1.0
    hot: bytes = b""
    """Hashes of keys that are counted in any case."""


class KeyCounts(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How many rows of an epoch, in one engine partition, have which key."""

    threshold: float = 1.0
    keys: bytes = b""
    counts: bytes = b""
    frequent: bytes = b""
    """Keys that many of the rows have, counted or not."""

    def __add__(self, other: KeyCounts) -> KeyCounts:
        # The same key may be in both; whoever reads the counts adds them up.
        return KeyCounts(
            min(self.threshold, other.threshold),
            self.keys + other.keys,
            self.counts + other.counts,
            self.frequent + other.frequent,
        )


def fractions(keys: Hashes) -> npt.NDArray[np.float64]:
    """Where hashes lie between 0 and 1. The lower half: by the upper one rows are placed."""
    return (keys & np.uint64(_SCALE - 1)).astype(np.float64) / _SCALE


def count_keys(
    query: Query, stream: str, placed_by: Key, table: pa.Table, sampling: Mapping[str, Sampling]
) -> dict[str, KeyCounts]:
    """The sampled keys of rows of a stream, for each of its key classes."""
    found = {}
    for key_class in query.classes:
        name = key_column(stream, key_class.id)
        if stream not in key_class.streams or len(key_class.streams) < 2:
            continue
        # The hash that places the rows is that of the key if it is of this class alone.
        placing = placed_by == (key_class.id,)
        with error_context(columns=key_class.of(stream)):
            hashes = as_array(table.column(HASH)) if placing else hash_values(table.column(name))
        found[name] = _count(hashes, sampling.get(name, Sampling()))
    return found


def _count(hashes: Hashes, sampling: Sampling) -> KeyCounts:
    threshold = sampling.threshold
    sampled, counts = np.unique(hashes[fractions(hashes) < threshold], return_counts=True)
    if len(sampled) > _MAX_SAMPLED_KEYS:
        threshold = max(
            float(np.partition(fractions(sampled), _MAX_SAMPLED_KEYS)[_MAX_SAMPLED_KEYS]), MIN_SAMPLED_SHARE
        )
        few = fractions(sampled) < threshold
        sampled, counts = sampled[few], counts[few]
    hot = np.frombuffer(sampling.hot, np.uint64)
    if len(hot):
        near = np.minimum(np.searchsorted(hot, hashes), len(hot) - 1)
        rows = np.bincount(near[hot[near] == hashes], minlength=len(hot))
        cold = ~np.isin(sampled, hot)
        sampled, counts = np.concatenate([sampled[cold], hot]), np.concatenate([counts[cold], rows])
    some, often = np.unique(hashes[:: max(1, len(hashes) // _LOOKED_AT)], return_counts=True)
    frequent = some[often >= _OFTEN]
    return KeyCounts(threshold, sampled.tobytes(), counts.astype(np.float64).tobytes(), frequent.tobytes())
