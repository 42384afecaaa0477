"""Samples of keys: counts are exact, however rows are divided among partitions, and bounded in number."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from midstream.engine.encode import HASH, time_column
from midstream.engine.hashing import hash_values
from midstream.engine.key_sample import KeyCounts, Sampling, count_keys, fractions
from midstream.plan.layout import key_column
from tests.adapt.synthetic_streams import Integers, clique, query_of

QUERY = query_of("abc", [*clique("ab"), "b.k1 = c.k1"])
COLUMN = key_column("a", 0)


def hashes_of(values: object) -> dict[int, int]:
    """The hash of each key."""
    keys = np.unique(np.asarray(values, np.int64))
    return dict(zip(keys.tolist(), hash_values(pa.array(keys)).tolist(), strict=True))


def counted(
    values: Integers, sampling: Sampling, partitions: int = 1, times: Integers | None = None
) -> KeyCounts:
    """The counts of a stream's keys whose rows come to so many partitions; without times, all at once."""
    counts = []
    times = np.zeros(len(values), np.int64) if times is None else times
    for partition in range(partitions):
        columns = {COLUMN: values, time_column("a"): times}
        table = pa.table({name: column[partition::partitions] for name, column in columns.items()})
        counts.append(count_keys(QUERY, "a", (), table, {COLUMN: sampling})[COLUMN])
    return KeyCounts.merge(counts)


def summed(counts: KeyCounts) -> dict[int, float]:
    """Rows by hash: several partitions may have counted the same key."""
    hashes = np.frombuffer(counts.keys, "<u8").tolist()
    sums: Counter[int] = Counter()
    for key, count in zip(hashes, np.frombuffer(counts.counts, "<f8").tolist(), strict=True):
        sums[key] += count
    return dict(sums)


def hot_keys(keys: list[int]) -> bytes:
    return np.sort(hash_values(pa.array(keys, pa.int64()))).tobytes()


@given(
    values=st.lists(st.integers(0, 40), max_size=200),
    threshold=st.sampled_from([0.05, 0.3, 1.0]),
    hot=st.lists(st.integers(0, 60), max_size=4, unique=True),
    partitions=st.integers(1, 5),
)
def test_sampled_and_hot_keys_are_counted_exactly_however_rows_are_divided(
    values, threshold, hot, partitions
):
    counts = counted(np.array(values, np.int64), Sampling(threshold, hot_keys(hot)), partitions)
    assert counts.threshold == threshold
    hashes = hashes_of(values)
    expected = {
        hashes[key]: count
        for key, count in Counter(values).items()
        if key in hot or fractions(np.array([hashes[key]], np.uint64))[0] < threshold
    }
    assert summed(counts) == expected


@pytest.mark.parametrize("partitions", [1, 2, 7])
def test_too_many_keys_lower_the_threshold_and_counts_below_it_remain_exact(partitions):
    values = np.random.default_rng(1).integers(0, 30_000, 60_000)
    counts = counted(values, Sampling(1.0, hot_keys([5, 6])), partitions)
    assert len(counts.keys) // 8 <= partitions * (1024 + 2)
    assert counts.threshold < 0.2
    hashes, true_counts = hashes_of(values), Counter(values.tolist())
    sums = summed(counts)
    below = [k for k, h in hashes.items() if fractions(np.array([h], np.uint64))[0] < counts.threshold]
    assert len(below) > 500
    assert all(sums[hashes[key]] == true_counts[key] for key in [*below, 5, 6])


def test_of_many_rows_with_many_keys_as_many_are_kept_as_may_be():
    # A first look at some of the rows lowers the threshold, but not below what is kept in the end.
    values = np.random.default_rng(4).integers(0, 20_000, 400_000)
    counts = counted(values, Sampling(1.0))
    hashes, true_counts = hashes_of(values), Counter(values.tolist())
    sampled = {key for key, h in hashes.items() if h & 0xFFFFFFFF < counts.threshold * 2**32}
    assert len(sampled) == 1024
    assert summed(counts) == {hashes[key]: true_counts[key] for key in sampled}


def test_samples_of_two_streams_have_the_same_keys():
    random = np.random.default_rng(2)
    one, two = (counted(random.permutation(20_000), Sampling(0.01)) for _ in range(2))
    assert summed(one) == summed(two)
    assert 100 < len(summed(one)) < 300


def test_counts_are_the_same_if_rows_have_been_placed_by_the_hash_already():
    values = pa.array(np.arange(1000) % 37)
    columns = {key_column("b", 0): values, key_column("b", 1): values, time_column("b"): np.arange(1000)}
    table = pa.table({HASH: hash_values(values), **columns})
    placed = count_keys(QUERY, "b", (0,), table, {})
    assert placed == count_keys(QUERY, "b", (), table, {})
    assert set(placed) == {key_column("b", 0), key_column("b", 1)}


def test_only_keys_of_the_streams_own_classes_are_counted():
    table = pa.table({key_column("c", 1): np.arange(5), time_column("c"): np.arange(5)})
    assert set(count_keys(QUERY, "c", (), table, {})) == {key_column("c", 1)}


@pytest.mark.parametrize("rows", [0, 1])
def test_one_row_and_none_are_counted(rows):
    counts = counted(np.arange(rows), Sampling(1.0, hot_keys([7])))
    assert sum(summed(counts).values()) == rows
    assert counts.frequent == b""


def test_a_key_with_a_large_share_is_reported_as_frequent_though_its_hash_is_not_sampled():
    random = np.random.default_rng(3)
    values = np.where(random.random(50_000) < 0.05, -1, random.integers(0, 40_000, 50_000))
    counts = counted(values, Sampling(1e-9), partitions=3)
    frequent = set(np.frombuffer(counts.frequent, "<u8").tolist())
    assert hashes_of([-1])[-1] in frequent
    assert len(frequent) < 4


def test_rows_of_a_key_that_are_near_in_time_are_one_entry_at_their_mean_time():
    times = np.array([100, 104, 105, 131, 100], np.int64) + 10**15
    counts = counted(np.array([1, 1, 1, 1, 2]), Sampling(bucket=10), times=times)
    hashes = hashes_of([1, 2])
    entries = zip(
        *(np.frombuffer(data, kind).tolist() for data, kind in ((counts.keys, "<u8"), (counts.times, "<i8"))),
        np.frombuffer(counts.counts, "<f8").tolist(),
        strict=True,
    )
    first, second = hashes[1], hashes[2]
    expected = {(first, 103, 3.0), (first, 131, 1.0), (second, 100, 1.0)}
    assert {(key, time - 10**15, rows) for key, time, rows in entries} == expected


def test_only_rows_of_the_last_two_windows_are_counted_and_none_that_is_far_ahead():
    times = np.append(np.arange(100, dtype=np.int64), [1000])
    counts = counted(np.arange(101), Sampling(window=20), times=times)
    kept = np.frombuffer(counts.times, "<i8")
    # The end is the time that an eighth of the rows is after.
    assert (kept.min(), kept.max()) == (87 - 40, 99)
    assert len(np.frombuffer(counted(np.arange(101), Sampling(), times=times).times, "<i8")) == 101
