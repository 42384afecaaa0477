"""Samples of keys: what is counted is exact, however the rows are divided, and never too much."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from midstream.engine.encode import HASH
from midstream.engine.hashing import hash_values
from midstream.engine.key_sample import KeyCounts, Sampling, count_keys, fractions
from midstream.plan.layout import key_column
from tests.adapt.synthetic_streams import Integers, clique, query_of

QUERY = query_of("abc", [*clique("ab"), "b.k1 = c.k1"])
COLUMN = key_column("a", 0)


def hashed(values: object) -> dict[int, int]:
    """Hashes of keys, by key."""
    keys = np.unique(np.asarray(values, np.int64))
    return dict(zip(keys.tolist(), hash_values(pa.array(keys)).tolist(), strict=True))


def counted(values: Integers, sampling: Sampling, parts: int = 1) -> KeyCounts:
    """The counts of a stream's keys when rows come to so many partitions."""
    found = KeyCounts()
    for part in range(parts):
        table = pa.table({COLUMN: values[part::parts]})
        found += count_keys(QUERY, "a", (), table, {COLUMN: sampling})[COLUMN]
    return found


def together(counts: KeyCounts) -> dict[int, float]:
    keys = np.frombuffer(counts.keys, "<u8").tolist()
    found: Counter[int] = Counter()
    for key, count in zip(keys, np.frombuffer(counts.counts, "<f8").tolist(), strict=True):
        found[key] += count
    return dict(found)


def hot(keys: list[int]) -> bytes:
    return np.sort(hash_values(pa.array(keys, pa.int64()))).tobytes()


@given(
    values=st.lists(st.integers(0, 40), max_size=200),
    threshold=st.sampled_from([0.05, 0.3, 1.0]),
    frequent=st.lists(st.integers(0, 60), max_size=4, unique=True),
    parts=st.integers(1, 5),
)
def test_sampled_and_hot_keys_are_counted_exactly_however_rows_are_divided(
    values, threshold, frequent, parts
):
    counts = counted(np.array(values, np.int64), Sampling(threshold, hot(frequent)), parts)
    assert counts.threshold == threshold
    hashes = hashed(values)
    wanted = {
        hashes[key]: count
        for key, count in Counter(values).items()
        if key in frequent or fractions(np.array([hashes[key]], np.uint64))[0] < threshold
    }
    # A hot key that did not come is counted as well: none of its rows.
    assert {key: count for key, count in together(counts).items() if count} == wanted


@pytest.mark.parametrize("parts", [1, 2, 7])
def test_if_there_are_too_many_keys_the_threshold_sinks_and_counts_below_it_stay_exact(parts):
    values = np.random.default_rng(1).integers(0, 30_000, 60_000)
    counts = counted(values, Sampling(1.0, hot([5, 6])), parts)
    assert len(counts.keys) // 8 <= parts * (1024 + 2)
    assert counts.threshold < 0.2
    hashes, true = hashed(values), Counter(values.tolist())
    found = together(counts)
    below = [k for k, h in hashes.items() if fractions(np.array([h], np.uint64))[0] < counts.threshold]
    assert len(below) > 500
    assert all(found[hashes[key]] == true[key] for key in [*below, 5, 6])


def test_samples_of_two_streams_have_the_same_keys():
    random = np.random.default_rng(2)
    one, two = (counted(random.permutation(20_000), Sampling(0.01)) for _ in range(2))
    assert together(one) == together(two)
    assert 100 < len(together(one)) < 300


def test_keys_that_are_placed_by_their_hash_are_not_hashed_again_and_count_the_same():
    values = pa.array(np.arange(1000) % 37)
    table = pa.table({HASH: hash_values(values), key_column("b", 0): values, key_column("b", 1): values})
    placed = count_keys(QUERY, "b", (0,), table, {})
    anew = count_keys(QUERY, "b", (), table, {})
    assert placed == anew
    assert set(placed) == {key_column("b", 0), key_column("b", 1)}


def test_only_keys_of_the_streams_own_classes_are_counted():
    table = pa.table({key_column("c", 1): np.arange(5)})
    assert set(count_keys(QUERY, "c", (), table, {})) == {key_column("c", 1)}


@pytest.mark.parametrize("rows", [0, 1])
def test_hardly_any_rows_are_counted_too(rows):
    counts = counted(np.arange(rows), Sampling(1.0, hot([7])))
    assert sum(together(counts).values()) == rows
    assert counts.frequent == b""


def test_a_key_with_a_large_share_is_found_though_its_hash_is_not_sampled():
    random = np.random.default_rng(3)
    values = np.where(random.random(50_000) < 0.05, -1, random.integers(0, 40_000, 50_000))
    counts = counted(values, Sampling(1e-9), parts=3)
    found = set(np.frombuffer(counts.frequent, "<u8").tolist())
    assert hashed([-1])[-1] in found
    assert len(found) < 4
