"""Statistics: rates are true, what is frequent is known apart, and all of it stays small."""

from __future__ import annotations

import math

import msgspec
import numpy as np
import pyarrow as pa
import pytest

from midstream.adapt.statistics import FREQUENT_KEYS, KEYS, advance, arrays, half_window, samplings
from midstream.engine.hashing import hash_values
from midstream.engine.key_sample import fractions
from midstream.plan.layout import key_column
from midstream.plan.state_id import decode_state_id, encode_state_id
from midstream.state.statistics import KeyStatistics, Statistics
from tests.adapt.synthetic_streams import clique, epochs_of, observe, query_of, skewed, star, uniform

QUERY = query_of("ab", clique("ab"))
COLUMN = key_column("a", 0)


def encoded(statistics: Statistics) -> bytes:
    return msgspec.json.encode(statistics, enc_hook=encode_state_id)


def key(value: int) -> int:
    return int(hash_values(pa.array([value], pa.int64()))[0])


def hot_keys(known: Statistics) -> set[int]:
    return set(np.frombuffer(known.frequent_keys[0], "<u8").tolist())


def cold_keys(known: Statistics, stream: str = "a") -> KeyStatistics:
    """What is known of a stream's keys that are not hot."""
    keys = known.streams[stream].keys[key_column(stream, 0)]
    hashes, weights = arrays(keys)
    cold = ~np.isin(hashes, np.frombuffer(known.frequent_keys[0], "<u8"))
    return KeyStatistics(keys.threshold, hashes[cold].tobytes(), weights[cold].tobytes())


@pytest.mark.parametrize("window", [1.0, 20.0, 500.0, None])
def test_a_steady_stream_has_its_true_rate_whatever_the_window(window):
    query, known = query_of("ab", clique("ab"), window), Statistics()
    for seconds in [2.5, 0.5, 40.0, 2.5, 0.25, 7.0] * 8:
        rows = {"a": int(12 * seconds), "b": int(4 * seconds)}
        known = advance(query, known, seconds, rows, {"a": int(120 * seconds)}, {}, None)
        assert known.streams["a"].rows / known.seconds == pytest.approx(12)
        assert known.streams["a"].bytes / known.streams["a"].rows == pytest.approx(10)
        assert known.streams["b"].rows / known.seconds == pytest.approx(4)
    assert known.elapsed == pytest.approx(8 * 52.75)


def test_figures_are_of_half_a_window():
    known = observe(QUERY, epochs_of({"a": 20, "b": 5}, {"a": uniform(9), "b": uniform(9)}, 40))
    assert half_window(QUERY) == 10
    assert known.seconds == pytest.approx(10, rel=0.01)
    assert known.epochs / known.seconds == pytest.approx(1 / 2.5, rel=0.01)


def test_without_a_window_between_all_nothing_fades():
    query = query_of("abc", clique("abc"), None, {("a", "b"): 20})
    assert half_window(query) == math.inf
    epochs = epochs_of(dict.fromkeys("abc", 10.0), dict.fromkeys("abc", uniform(9)), 60)
    known = observe(query, epochs)
    assert known.seconds == known.elapsed == 150
    assert known.streams["c"].rows == sum(e["c"].num_rows for e in epochs)


def test_an_epoch_in_which_no_time_passed_counts_its_rows():
    before = observe(QUERY, epochs_of({"a": 20, "b": 5}, dict.fromkeys("ab", uniform(9)), 4))
    after = advance(QUERY, before, 0.0, {"a": 7}, {}, {}, None)
    assert after.seconds == before.seconds
    assert after.streams["a"].rows == before.streams["a"].rows + 7


def test_a_rate_that_changes_is_known_after_two_windows():
    keys = dict.fromkeys("ab", uniform(50))
    before = observe(QUERY, epochs_of({"a": 100, "b": 10}, keys, 20))
    after = observe(QUERY, epochs_of({"a": 10, "b": 10}, keys, 16), before=before)
    assert after.streams["a"].rows / after.seconds == pytest.approx(10, rel=0.25)


@pytest.mark.parametrize("parts", [1, 4])
def test_distinct_keys_are_estimated_and_only_so_many_are_kept(parts):
    # Every key comes every epoch or two, so that all 50,000 are alive.
    draws = {"a": uniform(50_000), "b": uniform(500)}
    known = observe(QUERY, epochs_of({"a": 30_000, "b": 400}, draws, 6), parts=parts)
    many, few = cold_keys(known, "a"), known.streams["b"].keys[key_column("b", 0)]
    assert len(many.keys) // 8 <= KEYS
    assert len(many.keys) / 8 / many.threshold == pytest.approx(50_000, rel=0.25)
    assert few.threshold == 1
    assert len(few.keys) // 8 == 500


def test_weights_of_keys_add_up_to_the_rows():
    epochs = epochs_of({"a": 400, "b": 40}, {"a": uniform(300), "b": uniform(300)}, 20)
    for parts in (1, 3):
        stream = observe(QUERY, epochs, parts=parts).streams["a"]
        _, weights = arrays(stream.keys[COLUMN])
        assert weights.sum() == pytest.approx(stream.rows, rel=1e-3)


def test_statistics_do_not_depend_on_the_division_into_partitions():
    # So few rows of a key other than the hot one that none of them seems frequent to a partition.
    epochs = epochs_of({"a": 300, "b": 200}, {"a": skewed(3000, 0.3), "b": uniform(3000)}, 12)
    one, three = observe(QUERY, epochs), observe(QUERY, epochs, parts=3)
    assert hot_keys(one) == hot_keys(three) == {key(-1)}
    for stream in "ab":
        (mine, weights), (others, other_weights) = (
            arrays(known.streams[stream].keys[key_column(stream, 0)]) for known in (one, three)
        )
        assert np.array_equal(mine, others)
        assert weights == pytest.approx(other_weights)


def test_a_key_with_a_large_share_becomes_hot_and_ceases_to_be():
    rates, calm = {"a": 400.0, "b": 50.0}, {"a": uniform(30_000), "b": uniform(30_000)}
    known = observe(QUERY, epochs_of(rates, calm, 8))
    assert key(-1) not in hot_keys(known)
    known = observe(QUERY, epochs_of(rates, {**calm, "a": skewed(30_000, 0.2)}, 16, start=8), before=known)
    assert key(-1) in hot_keys(known)
    hashes, weights = arrays(known.streams["a"].keys[COLUMN])
    share = float(weights[hashes == key(-1)][0]) / known.streams["a"].rows
    assert share == pytest.approx(0.2, rel=0.15)
    known = observe(QUERY, epochs_of(rates, calm, 24, start=24), before=known)
    assert key(-1) not in hot_keys(known)


def test_a_hot_key_of_one_stream_is_counted_in_the_others():
    draws = {"a": skewed(30_000, 0.2), "b": uniform(30_000, -5)}
    known = observe(QUERY, epochs_of({"a": 400, "b": 4000}, draws, 10))
    assert samplings(QUERY, known)[key_column("b", 0)].always_counted == known.frequent_keys[0]
    assert key(-1) in arrays(known.streams["b"].keys[key_column("b", 0)])[0].tolist()


def test_hot_keys_are_few_and_those_with_the_largest_shares():
    def draw(random, rows):
        # Two hundred keys have the more rows the smaller they are; the first have some percent each.
        return np.minimum((random.pareto(0.6, rows) * 3).astype(np.int64), 50_000)

    known = observe(QUERY, epochs_of({"a": 3000, "b": 10}, {"a": draw, "b": uniform(9)}, 10))
    assert len(hot_keys(known)) <= FREQUENT_KEYS
    assert {key(value) for value in range(6)} <= hot_keys(known)


def test_after_a_backlog_the_sample_grows_to_what_comes_later():
    draws = {"a": uniform(100_000), "b": uniform(500)}
    known = observe(QUERY, epochs_of({"a": 40_000, "b": 40}, draws, 1))
    small = {"a": uniform(500), "b": uniform(500)}
    known = observe(QUERY, epochs_of({"a": 40, "b": 40}, small, 60, start=1), before=known)
    sample = cold_keys(known)
    assert sample.threshold > 0.1
    # In four and a half time constants, 45 seconds, nearly all of the 500 keys come.
    assert len(sample.keys) / 8 / sample.threshold == pytest.approx(470, rel=0.25)


def test_a_stream_that_stops_is_forgotten_but_has_figures():
    epochs = epochs_of({"a": 500, "b": 500}, dict.fromkeys("ab", uniform(900)), 10)
    quiet = epochs_of({"a": 0, "b": 500}, dict.fromkeys("ab", uniform(900)), 60, start=10)
    known = observe(QUERY, quiet, before=observe(QUERY, epochs))
    assert known.streams["a"].rows < 0.01
    assert known.streams["a"].keys[COLUMN].keys == b""


def test_statistics_survive_their_journey_through_json():
    names = "abcd"
    draws = {"a": skewed(5000, 0.3), **dict.fromkeys("bcd", uniform(3000))}
    known = observe(query_of(names, star(names)), epochs_of(dict.fromkeys(names, 333.3), draws, 5))
    again = msgspec.json.decode(encoded(known), type=Statistics, dec_hook=decode_state_id)
    assert again == known
    assert encoded(again) == encoded(known)
    for column, keys in known.streams["a"].keys.items():
        hashes, _ = arrays(again.streams["a"].keys[column])
        assert np.all(np.diff(hashes.astype(object)) > 0)
        assert np.all(fractions(arrays(cold_keys(known))[0]) < keys.threshold) or column != COLUMN


def test_statistics_of_eight_streams_are_small():
    names = "abcdefgh"
    query = query_of(names, clique(names))
    draws = {name: skewed(100_000, 0.05) for name in names}
    known = observe(query, epochs_of(dict.fromkeys(names, 4000), draws, 4), parts=2)
    # A key and its weight take 16 bytes, a third more in JSON.
    assert len(encoded(known)) < 8 * (KEYS + FREQUENT_KEYS) * 16 * 1.4 + 4000
