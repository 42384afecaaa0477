"""Statistics: rates are true, frequent keys are counted separately, and all of it remains small."""

from __future__ import annotations

import math

import msgspec
import numpy as np
import pyarrow as pa
import pytest
from msgspec.structs import replace

from midstream.adapt.statistics import (
    BUCKETS_IN_WINDOW,
    MAX_FREQUENT_KEYS,
    MAX_SAMPLED_ENTRIES,
    Entries,
    decay_seconds,
    entries,
    samplings,
)
from midstream.engine.hashing import hash_values
from midstream.engine.key_sample import SAMPLED_WINDOWS, fractions
from midstream.plan.layout import key_column
from midstream.plan.state_id import decode_state_id, encode_state_id
from midstream.state.statistics import KeyStatistics, Statistics, StreamStatistics
from tests.adapt.synthetic_streams import (
    advance_by,
    clique,
    epochs_of,
    query_of,
    skewed,
    star,
    statistics_of,
    uniform,
)

QUERY = query_of("ab", clique("ab"))
COLUMN = key_column("a", 0)


def encoded(statistics: Statistics) -> bytes:
    return msgspec.json.encode(statistics, enc_hook=encode_state_id)


def hash_of(value: int) -> int:
    return int(hash_values(pa.array([value], pa.int64()))[0])


def frequent_keys(statistics: Statistics) -> set[int]:
    return set(np.frombuffer(statistics.frequent_keys[0], "<u8").tolist())


def keys_of(statistics: Statistics, stream: str = "a") -> KeyStatistics:
    return statistics.streams[stream].keys[key_column(stream, 0)]


def other_keys(statistics: Statistics, stream: str = "a") -> Entries:
    """The entries of a stream's keys that are not frequent."""
    sample = entries(keys_of(statistics, stream))
    other = ~np.isin(sample.keys, np.frombuffer(statistics.frequent_keys[0], "<u8"))
    return sample.where(other)


def distinct_keys(statistics: Statistics, stream: str = "a") -> float:
    """How many keys that are not frequent a stream seems to have."""
    return len(np.unique(other_keys(statistics, stream).keys)) / keys_of(statistics, stream).threshold


@pytest.mark.parametrize("window", [1.0, 20.0, 500.0, None])
def test_a_steady_stream_has_its_true_rate_whatever_the_window(window):
    query = query_of("ab", clique("ab"), window)
    statistics = advance_by(query, Statistics(), 0.0, {})
    for seconds in [2.5, 0.5, 40.0, 2.5, 0.25, 7.0] * 8:
        rows = {"a": int(12 * seconds), "b": int(4 * seconds)}
        statistics = advance_by(query, statistics, seconds, rows, {"a": int(120 * seconds)})
        assert statistics.streams["a"].rows / statistics.seconds == pytest.approx(12)
        assert statistics.streams["a"].bytes / statistics.streams["a"].rows == pytest.approx(10)
        assert statistics.streams["b"].rows / statistics.seconds == pytest.approx(4)
    assert statistics.elapsed == pytest.approx(8 * 52.75)


def test_statistics_cover_half_a_window():
    statistics = statistics_of(QUERY, epochs_of({"a": 20, "b": 5}, {"a": uniform(9), "b": uniform(9)}, 40))
    assert decay_seconds(QUERY) == 10
    assert statistics.seconds == pytest.approx(10, rel=0.01)
    assert statistics.epochs / statistics.seconds == pytest.approx(1 / 2.5, rel=0.01)


def test_nothing_decays_if_some_streams_have_no_window_between_them():
    query = query_of("abc", clique("abc"), None, {("a", "b"): 20})
    assert decay_seconds(query) == math.inf
    epochs = epochs_of(dict.fromkeys("abc", 10.0), dict.fromkeys("abc", uniform(9)), 60)
    statistics = statistics_of(query, epochs)
    assert statistics.seconds == statistics.elapsed == 150
    assert statistics.streams["c"].rows == sum(e["c"].num_rows for e in epochs)


def test_rows_of_an_epoch_in_which_no_event_time_passes_are_counted():
    before = statistics_of(QUERY, epochs_of({"a": 20, "b": 5}, dict.fromkeys("ab", uniform(9)), 4))
    after = advance_by(QUERY, before, 0.0, {"a": 7})
    assert after.seconds == before.seconds
    assert after.streams["a"].rows == before.streams["a"].rows + 7


def test_a_new_rate_is_estimated_after_two_windows():
    keys = dict.fromkeys("ab", uniform(50))
    before = statistics_of(QUERY, epochs_of({"a": 100, "b": 10}, keys, 20))
    after = statistics_of(QUERY, epochs_of({"a": 10, "b": 10}, keys, 16), before=before)
    assert after.streams["a"].rows / after.seconds == pytest.approx(10, rel=0.25)


@pytest.mark.parametrize("partitions", [1, 4])
def test_distinct_keys_are_estimated_from_a_bounded_sample(partitions):
    # Every key comes every epoch or two, so that all 50,000 are live.
    draws = {"a": uniform(50_000), "b": uniform(500)}
    statistics = statistics_of(QUERY, epochs_of({"a": 30_000, "b": 400}, draws, 6), partitions=partitions)
    assert len(other_keys(statistics).keys) <= MAX_SAMPLED_ENTRIES
    assert distinct_keys(statistics) == pytest.approx(50_000, rel=0.25)
    assert distinct_keys(statistics, "b") == pytest.approx(500, rel=0.25)


def test_rows_of_entries_add_up_to_those_of_the_last_two_windows():
    epochs = epochs_of({"a": 400, "b": 40}, {"a": uniform(50), "b": uniform(50)}, 20)
    for partitions in (1, 3):
        statistics = statistics_of(QUERY, epochs, partitions=partitions)
        assert keys_of(statistics).threshold == 1
        rows = sum(epoch["a"].num_rows for epoch in epochs[4:])
        # Rows of an entry are forgotten together, when their mean time is two windows ago.
        assert entries(keys_of(statistics)).rows.sum() == pytest.approx(rows, rel=0.02)


def test_statistics_do_not_depend_on_the_number_of_partitions():
    # All keys but the frequent one have so few rows that none of them seems frequent in a partition.
    epochs = epochs_of({"a": 300, "b": 200}, {"a": skewed(3000, 0.3), "b": uniform(3000)}, 12)
    one, three = statistics_of(QUERY, epochs), statistics_of(QUERY, epochs, partitions=3)
    assert frequent_keys(one) == frequent_keys(three) == {hash_of(-1)}
    for stream in "ab":
        sample, sample_of_three = (entries(keys_of(statistics, stream)) for statistics in (one, three))
        assert np.array_equal(sample.keys, sample_of_three.keys)
        assert np.array_equal(sample.rows, sample_of_three.rows)
        # Means of times are rounded to microseconds, of partitions and once more of all.
        assert np.abs(sample.times - sample_of_three.times).max() <= 2


def test_a_key_is_frequent_while_it_has_a_large_share():
    rates, uniform_keys = {"a": 400.0, "b": 50.0}, {"a": uniform(30_000), "b": uniform(30_000)}
    statistics = statistics_of(QUERY, epochs_of(rates, uniform_keys, 8))
    assert hash_of(-1) not in frequent_keys(statistics)
    statistics = statistics_of(
        QUERY, epochs_of(rates, {**uniform_keys, "a": skewed(30_000, 0.2)}, 16, start=8), before=statistics
    )
    assert hash_of(-1) in frequent_keys(statistics)
    sample = entries(keys_of(statistics))
    share = sample.rows[sample.keys == hash_of(-1)].sum() / (400 * 40)
    assert share == pytest.approx(0.2, rel=0.15)
    statistics = statistics_of(QUERY, epochs_of(rates, uniform_keys, 24, start=24), before=statistics)
    assert hash_of(-1) not in frequent_keys(statistics)


def test_a_frequent_key_of_one_stream_is_counted_in_the_others():
    draws = {"a": skewed(30_000, 0.2), "b": uniform(30_000, -5)}
    statistics = statistics_of(QUERY, epochs_of({"a": 400, "b": 4000}, draws, 10))
    assert samplings(QUERY, statistics)[key_column("b", 0)].always_counted == statistics.frequent_keys[0]
    assert hash_of(-1) in entries(keys_of(statistics, "b")).keys.tolist()


def test_frequent_keys_are_a_bounded_number_of_keys_with_the_largest_shares():
    def draw(random, rows):
        # The smaller a key, the more rows it has; the smallest ones have some percent each.
        return np.minimum((random.pareto(0.6, rows) * 3).astype(np.int64), 50_000)

    statistics = statistics_of(QUERY, epochs_of({"a": 3000, "b": 10}, {"a": draw, "b": uniform(9)}, 10))
    assert len(frequent_keys(statistics)) <= MAX_FREQUENT_KEYS
    assert {hash_of(value) for value in range(6)} <= frequent_keys(statistics)


def test_the_sample_grows_again_when_streams_have_fewer_keys_after_a_backlog():
    draws = {"a": uniform(100_000), "b": uniform(500)}
    statistics = statistics_of(QUERY, epochs_of({"a": 40_000, "b": 40}, draws, 1))
    small = {"a": uniform(500), "b": uniform(500)}
    statistics = statistics_of(QUERY, epochs_of({"a": 40, "b": 40}, small, 60, start=1), before=statistics)
    assert keys_of(statistics).threshold > 0.1
    # In two windows, 40 seconds, nearly all of the 500 keys come.
    assert distinct_keys(statistics) == pytest.approx(480, rel=0.25)


def test_keys_of_a_stream_that_stops_are_forgotten_but_its_statistics_remain():
    epochs = epochs_of({"a": 500, "b": 500}, dict.fromkeys("ab", uniform(900)), 10)
    quiet = epochs_of({"a": 0, "b": 500}, dict.fromkeys("ab", uniform(900)), 60, start=10)
    statistics = statistics_of(QUERY, quiet, before=statistics_of(QUERY, epochs))
    assert statistics.streams["a"].rows < 0.01
    assert statistics.streams["a"].keys[COLUMN].keys == b""


def test_statistics_are_the_same_after_json():
    names = "abcd"
    draws = {"a": skewed(5000, 0.3), **dict.fromkeys("bcd", uniform(3000))}
    statistics = statistics_of(query_of(names, star(names)), epochs_of(dict.fromkeys(names, 333.3), draws, 5))
    decoded = msgspec.json.decode(encoded(statistics), type=Statistics, dec_hook=decode_state_id)
    assert decoded == statistics
    assert encoded(decoded) == encoded(statistics)
    for column, keys in statistics.streams["a"].keys.items():
        sample = entries(decoded.streams["a"].keys[column])
        assert np.all(np.diff(sample.keys.astype(object)) >= 0)
        assert np.all(fractions(other_keys(statistics).keys) < keys.threshold) or column != COLUMN


def test_statistics_of_eight_streams_are_small():
    names = "abcdefgh"
    query = query_of(names, clique(names))
    draws = {name: skewed(100_000, 0.05) for name in names}
    statistics = statistics_of(query, epochs_of(dict.fromkeys(names, 4000), draws, 4), partitions=2)
    # A key, its time and its rows take 20 bytes, a third more in JSON; a frequent key has an entry a bucket.
    most = MAX_SAMPLED_ENTRIES + MAX_FREQUENT_KEYS * SAMPLED_WINDOWS * BUCKETS_IN_WINDOW
    assert len(encoded(statistics)) < 8 * most * 20 * 1.4 + 4000


def test_a_sample_without_times_of_an_earlier_format_starts_anew():
    statistics = statistics_of(QUERY, epochs_of({"a": 40, "b": 5}, dict.fromkeys("ab", uniform(90)), 4))
    stream = statistics.streams["a"]
    weights = entries(stream.keys[COLUMN]).rows.astype("<f8").tobytes()
    old = KeyStatistics(1.0, stream.keys[COLUMN].keys, weights)
    assert len(entries(old).keys) == 0
    before = replace(
        statistics, streams={**statistics.streams, "a": StreamStatistics(stream.rows, 1.0, {COLUMN: old})}
    )
    after = statistics_of(
        QUERY, epochs_of({"a": 40, "b": 5}, dict.fromkeys("ab", uniform(90)), 4, start=4), before=before
    )
    assert 0 < len(entries(after.streams["a"].keys[COLUMN]).keys) <= 400
