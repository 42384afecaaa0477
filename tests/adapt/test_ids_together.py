"""Ids that belong together in time are estimated as they are, whatever the epochs, and rows out of time."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from msgspec.structs import replace

from midstream.adapt.estimate import Estimator
from midstream.adapt.plan_cost import plan_cost
from midstream.inline import InlineJoin
from midstream.plan.default_plan import default_plan
from midstream.protocol.settings import Settings
from midstream.values import MICROS_PER_SECOND
from tests.adapt.synthetic_streams import KEY_COLUMNS, SCHEMA, chain, clique, query_of
from tests.adapt.timed_ids import Rows, TimedIds, draw_ids

WINDOW = 20.0


def history(streams: TimedIds, names: str, epoch: float) -> list[Estimator]:
    query = query_of(names, clique(names), WINDOW)
    return [Estimator(query, statistics) for statistics in streams.history(query, epoch)]


@pytest.mark.parametrize("names", ["ab", "abc", "abcdef"])
@pytest.mark.parametrize("rate", [1, 20, 200])
def test_the_same_ids_in_all_streams_are_joined_once(names, rate):
    streams = draw_ids(names, rate, 3 * WINDOW, at_random=False)
    estimator = history(streams, names, epoch=1.0)[-1]
    for members in (names[:2], names[-2:], names):
        assert estimator.rate(members) == pytest.approx(rate, rel=0.1), members


@pytest.mark.parametrize("windows_in_epoch", [5, 1, 0.3, 1 / 40, 1 / 400])
def test_the_length_of_epochs_does_not_matter(windows_in_epoch):
    epoch = windows_in_epoch * WINDOW
    streams = draw_ids("abc", 20, max(3 * epoch, 3 * WINDOW), at_random=False)
    estimator = history(streams, "abc", epoch)[-1]
    assert estimator.rate("ab") == pytest.approx(20, rel=0.1)
    assert estimator.rate("abc") == pytest.approx(20, rel=0.1)


@pytest.mark.parametrize("delay", [0.02, 0.2, 0.5])
@pytest.mark.parametrize("names", ["ab", "abcd"])
def test_rows_of_an_id_may_come_after_each_other(names, delay):
    # With the longest delays a part of the ids is not within the window.
    streams = draw_ids(names, 60, 4 * WINDOW, delay=delay * WINDOW)
    estimator = history(streams, names, epoch=WINDOW / 10)[-1]
    assert estimator.rate(names) == pytest.approx(streams.true_rate(names, WINDOW, WINDOW), rel=0.1)


def test_ids_whose_rows_are_further_apart_than_the_window_do_not_match():
    streams = draw_ids("ab", 20, 4 * WINDOW)
    rows = streams.rows["b"]
    late = Rows(rows.times + round(1.2 * WINDOW * MICROS_PER_SECOND), rows.ids, rows.arrivals)
    estimator = history(TimedIds({**streams.rows, "b": late}, streams.seconds), "ab", epoch=1.0)[-1]
    # Of 20 ids a second, less than can be ruled out by what was seen.
    assert estimator.rate("ab") < 0.2


def test_half_of_the_window_is_enough_to_begin_with():
    for seconds in (0.5 * WINDOW, WINDOW, 1.5 * WINDOW):
        streams = draw_ids("abc", 20, seconds, at_random=False)
        assert history(streams, "abc", epoch=1.0)[-1].rate("abc") == pytest.approx(20, rel=0.1)


def test_without_a_window_ids_that_come_once_match_once():
    query = query_of("abc", clique("abc"), None)
    streams = draw_ids("abc", 20, 100, delay=3)
    estimator = Estimator(query, streams.statistics(query, epoch=2.0))
    assert estimator.rate("ab") == pytest.approx(20, rel=0.15)
    assert estimator.rate("abc") == pytest.approx(20, rel=0.15)


def test_ids_together_by_several_keys_are_within_the_windows_of_all():
    query = query_of("abcd", chain("abcd"), WINDOW)
    join = InlineJoin(query, "((a b) c) d", settings=Settings(1, 1))
    for second in range(50):
        ids = second * 10 + np.arange(10)
        micros = (second * MICROS_PER_SECOND + np.arange(10) * 100_000).view("datetime64[us]")
        table = pa.table([ids, micros, *(ids for _ in KEY_COLUMNS)], schema=SCHEMA)
        results = join.run_epoch(dict.fromkeys("abcd", table))
    assert results.num_rows == 10
    estimator = Estimator(query, replace(join.manifest.statistics, produced={}, observed_seconds=0.0))
    for members in ("ab", "abc", "bcd", "abcd"):
        assert estimator.rate(members) == pytest.approx(10, rel=0.1), members


@pytest.mark.parametrize("rate", [1, 20])
@pytest.mark.parametrize("ahead", [600.0, -600.0, 2 * WINDOW])
@pytest.mark.parametrize("names", ["ab", "abc"])
def test_a_row_out_of_time_in_every_third_epoch_changes_little(names, ahead, rate):
    clean = draw_ids(names, rate, 5 * WINDOW, at_random=False)
    wrong = TimedIds({n: rows.with_ahead(3.0, ahead) for n, rows in clean.rows.items()}, clean.seconds)
    plan = default_plan(query_of(names, clique(names), WINDOW))
    costs = {}
    for kind, streams in (("clean", clean), ("wrong", wrong)):
        steady = history(streams, names, epoch=1.0)[-40:]
        costs[kind] = np.array([plan_cost(plan, estimator, 2) for estimator in steady])
        assert np.array([e.rate(names) for e in steady]) == pytest.approx(rate, rel=0.2), kind
        assert costs[kind].std() / costs[kind].mean() < 0.1, kind
    # By no more than these rows are of all, a third of a row per second, and the noise of the sample.
    assert 0.9 < costs["wrong"].mean() / costs["clean"].mean() < 1.1 * (1 + 1 / (3 * rate))


@pytest.mark.parametrize("at_random", [True, False])
@pytest.mark.parametrize("epoch", [0.5, 3.0, 30.0])
def test_the_cost_of_a_plan_is_steady_while_the_streams_are(epoch, at_random):
    streams = draw_ids("abc", 30, max(6 * WINDOW, 9 * epoch), delay=2, at_random=at_random)
    streams = TimedIds({**streams.rows, "b": streams.rows["b"].with_ahead(7, 300)}, streams.seconds)
    query = query_of("abc", clique("abc"), WINDOW)
    plan = default_plan(query)
    begun = round(2.5 * WINDOW / epoch) + 2
    costs = np.array([plan_cost(plan, e, 2) for e in history(streams, "abc", epoch)[begun:]])
    assert costs.std() / costs.mean() < 0.08
