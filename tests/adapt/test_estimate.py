"""Estimates: close to the truth where the sample can tell, and of low confidence where it cannot."""

from __future__ import annotations

from itertools import combinations
from math import prod

import polars as pl
import pyarrow as pa
import pytest
from msgspec.structs import replace

from midstream.adapt.estimate import Estimator
from midstream.inline import InlineJoin
from midstream.plan.state_id import StateId
from midstream.protocol.settings import Settings
from midstream.query.query import Query
from midstream.values import MICROS_PER_SECOND
from tests.adapt.synthetic_streams import (
    EPOCH_SECONDS,
    DrawKeys,
    Epoch,
    chain,
    clique,
    epochs_of,
    query_of,
    skewed,
    statistics_of,
    uniform,
)

WINDOW = 20.0
RATES = {"a": 40.0, "b": 10.0, "c": 25.0, "d": 15.0}


def rate_of_uniform_keys(names: str, domain: int) -> float:
    """Rows per second of the join of streams with uniform keys, by formula."""
    n = len(names)
    return n * (WINDOW / domain) ** (n - 1) * prod(RATES[name] for name in names)


def true_rate_of_pairs(epochs: list[Epoch], after: float) -> float:
    """Pairs of a and b per second, once so many seconds have passed; joined by Polars."""
    a, b = (
        pl.DataFrame(pa.concat_tables([epoch[name] for epoch in epochs])).select(
            "k0", pl.col("t").dt.timestamp("us").alias(name)
        )
        for name in "ab"
    )
    pairs = a.join(b, on="k0").filter((pl.col("a") - pl.col("b")).abs() <= WINDOW * MICROS_PER_SECOND)
    newest = pl.max_horizontal("a", "b") / MICROS_PER_SECOND
    return pairs.filter(newest >= after).height / (EPOCH_SECONDS * len(epochs) - after)


@pytest.mark.parametrize("domain", [50, 300])
def test_rates_of_uniform_keys_are_those_of_the_formula(domain):
    query = query_of("abcd", clique("abcd"))
    epochs = epochs_of(RATES, dict.fromkeys("abcd", uniform(domain)), 30)
    estimator = Estimator(query, statistics_of(query, epochs))
    for names in ("".join(n) for size in (1, 2, 3) for n in combinations("abcd", size)):
        assert estimator.rate(names) == pytest.approx(rate_of_uniform_keys(names, domain), rel=0.25), names
        assert estimator.estimate(names).confidence > 0.5, names


def test_estimates_from_few_sampled_keys_scatter_around_the_truth():
    query = query_of("abc", clique("abc"))
    rates = {name: 40 * RATES[name] for name in "abc"}
    draws = dict.fromkeys("abc", uniform(20_000))
    samples = [statistics_of(query, epochs_of(rates, draws, 14, seed=seed)) for seed in range(8)]
    assert samples[0].streams["a"].keys["a#k0"].threshold < 0.1
    for names in ("ab", "bc", "abc"):
        estimates = [Estimator(query, statistics).rate(names) for statistics in samples]
        truth = rate_of_uniform_keys(names, 20_000) * 40 ** len(names)
        assert sum(estimates) / len(estimates) == pytest.approx(truth, rel=0.25), names
        assert all(truth / 2 < estimate < truth * 2 for estimate in estimates), names


def test_domains_that_overlap_by_a_quarter_match_by_a_quarter():
    query = query_of("ab", clique("ab"))
    draws = {"a": uniform(400), "b": uniform(400, first=300)}
    rates = []
    for seed in range(8):
        epochs = epochs_of({"a": RATES["a"], "b": RATES["b"]}, draws, 24, seed=seed)
        rates.append(Estimator(query, statistics_of(query, epochs)).rate("ab"))
    assert sum(rates) / len(rates) == pytest.approx(rate_of_uniform_keys("ab", 400) / 4, rel=0.2)


@pytest.mark.parametrize("share", [0.05, 0.2])
@pytest.mark.parametrize("both", [True, False])
def test_a_frequent_key_is_accounted_for(share, both):
    query = query_of("ab", clique("ab"))
    draws: dict[str, DrawKeys] = {"a": skewed(20_000, share), "b": skewed(20_000, share if both else 0.001)}
    epochs = epochs_of({"a": 400, "b": 200}, draws, 32)
    estimate = Estimator(query, statistics_of(query, epochs, partitions=2)).estimate("ab")
    assert estimate.value == pytest.approx(true_rate_of_pairs(epochs, after=40), rel=0.3)


def test_many_frequent_keys_are_accounted_for():
    query = query_of("ab", clique("ab"))
    draw: DrawKeys = lambda random, rows: (random.pareto(1.2, rows) * 40).astype("int64") % 10_000  # noqa: E731
    epochs = epochs_of({"a": 100, "b": 60}, {"a": draw, "b": draw}, 32)
    rate = Estimator(query, statistics_of(query, epochs)).rate("ab")
    assert rate == pytest.approx(true_rate_of_pairs(epochs, after=40), rel=0.3)


def test_streams_that_never_match_get_a_small_and_uncertain_estimate():
    query = query_of("abc", clique("abc"))
    draws = {"a": uniform(300), "b": uniform(300, first=1000), "c": uniform(300)}
    estimator = Estimator(query, statistics_of(query, epochs_of(RATES, {**draws, "d": uniform(9)}, 30)))
    for names in ("ab", "bc", "abc"):
        estimate = estimator.estimate(names)
        assert 0 < estimate.value < 0.03 * rate_of_uniform_keys(names, 300), names
        assert estimate.confidence < 0.1, names
    assert estimator.estimate("ac").confidence > 0.5


def test_selectivities_of_several_key_classes_multiply_and_lower_the_confidence():
    both = query_of("ab", ["a.k0 = b.k0", "a.k1 = b.k1"])
    draws = dict.fromkeys("ab", (uniform(30), uniform(20)))
    epochs = epochs_of({"a": 40, "b": 10}, draws, 30)
    estimate = Estimator(both, statistics_of(both, epochs)).estimate("ab")
    assert estimate.value == pytest.approx(rate_of_uniform_keys("ab", 600), rel=0.25)
    one = query_of("ab", clique("ab"))
    estimate_of_one = Estimator(one, statistics_of(one, epochs)).estimate("ab")
    assert estimate.confidence <= 0.5 < estimate_of_one.confidence


def test_selectivities_multiply_along_a_chain_of_key_classes():
    query = query_of("abc", chain("abc"))
    draws = dict.fromkeys("abcd", (uniform(60), uniform(150)))
    estimator = Estimator(query, statistics_of(query, epochs_of(RATES, draws, 30)))
    pairs, triples = 2 * WINDOW, 3 * WINDOW**2
    assert estimator.rate("ab") == pytest.approx(pairs * 40 * 10 / 60, rel=0.25)
    assert estimator.rate("bc") == pytest.approx(pairs * 10 * 25 / 150, rel=0.25)
    assert estimator.rate("ac") == pytest.approx(pairs * 40 * 25, rel=0.25)
    assert estimator.rate("abc") == pytest.approx(triples * 40 * 10 * 25 / 60 / 150, rel=0.3)


def run_plan(query: Query, epochs: list[Epoch], plan: str) -> tuple[InlineJoin, list[int]]:
    """A query that has run by a plan, and its number of results in each epoch."""
    join = InlineJoin(query, plan, settings=Settings(1, 1))
    return join, [join.run_epoch(epoch).num_rows for epoch in epochs]


WINDOWS_OF_PAIRS: dict[str, dict[tuple[str, str], float]] = {
    "abc": {("a", "b"): 5, ("b", "c"): 15},
    "abcd": {("a", "b"): 1, ("b", "c"): 20, ("c", "d"): 1},
}


@pytest.mark.parametrize("names", WINDOWS_OF_PAIRS)
def test_each_pair_is_limited_by_its_own_window(names):
    query = query_of(names, clique(names), None, WINDOWS_OF_PAIRS[names])
    epochs = epochs_of({n: RATES[n] for n in names}, dict.fromkeys(names, uniform(30)), 32)
    estimator = Estimator(query, statistics_of(query, epochs))
    for (a, b), bound in WINDOWS_OF_PAIRS[names].items():
        assert estimator.rate((a, b)) == pytest.approx(2 * bound * RATES[a] * RATES[b] / 30, rel=0.25)
    _, results = run_plan(query, epochs, " ".join(names))
    assert estimator.rate(names) == pytest.approx(sum(results[16:]) / 40, rel=0.5)


def test_stored_rows_are_those_of_the_states_with_windows_that_differ():
    query = query_of("abc", clique("abc"), None, {("a", "b"): 1, ("b", "c"): 30})
    epochs = epochs_of({n: RATES[n] for n in "abc"}, dict.fromkeys("abc", uniform(60)), 32)
    join, _ = run_plan(query, epochs, "(a b) c")
    estimator = Estimator(query, replace(join.manifest.statistics, produced={}, observed_seconds=0.0))
    for state in ("a", "b", "c", "a,b"):
        stored = sum(
            s.rows for s in join.manifest.slices if s.owner.kind == "index" and s.owner.state == state
        )
        assert estimator.stored_rows(state.split(",")) == pytest.approx(stored, rel=0.4), state


def test_confidence_grows_with_the_data():
    query = query_of("ab", clique("ab"), 600)
    epochs = epochs_of({"a": 4, "b": 1}, dict.fromkeys("ab", uniform(400)), 200)
    confidences = [
        Estimator(query, statistics_of(query, epochs[:n])).estimate("ab").confidence for n in (3, 10, 40, 200)
    ]
    assert confidences == sorted(confidences)
    assert confidences[0] < 0.5 < confidences[-1]


def test_the_selectivity_of_a_condition_is_guessed_until_the_running_plan_has_shown_it():
    query = query_of("abc", [*clique("abc"), "a.k1 < b.k1"])
    # The condition leaves a sixteenth of the pairs.
    draws = {"a": [uniform(60), uniform(80)], "b": [uniform(60), uniform(11)], "c": [uniform(60)]}
    epochs = epochs_of({n: RATES[n] for n in "abc"}, draws, 40)
    selectivity = sum(range(11)) / (11 * 80)
    join, results = run_plan(query, epochs, "(a b) c")
    statistics = join.manifest.statistics
    true_rates = {"ab": rate_of_uniform_keys("ab", 60) * selectivity, "abc": sum(results[20:]) / 50}
    guessed = Estimator(query, replace(statistics, produced={}, observed_seconds=0.0))
    observed = Estimator(query, statistics)
    for names, true_rate in true_rates.items():
        assert guessed.rate(names) > 3 * true_rate, names
        assert observed.rate(names) == pytest.approx(true_rate, rel=0.3), names
    assert (guessed.guessed_conditions("ab"), observed.guessed_conditions("ab")) == (1, 0)
    assert observed.estimate("ab").confidence > 0.99
    # Rows produced of a part of the join correct the estimate of all of it.
    state = StateId("a,b")
    part = Estimator(query, replace(statistics, produced={state: statistics.produced[state]}))
    assert part.rate("abc") == pytest.approx(true_rates["abc"], rel=0.3)


def test_an_epoch_without_results_does_not_reset_the_observed_rate():
    query = query_of("ab", [*clique("ab"), "a.k1 < b.k1"])
    draws = {"a": (uniform(60), uniform(80)), "b": (uniform(60), uniform(11))}
    epochs = epochs_of({"a": 6, "b": 4}, draws, 60, seconds=1)
    join, results = run_plan(query, epochs, "a b")
    assert 0 in results[40:]
    true_rate = sum(results[20:]) / 40
    assert Estimator(query, join.manifest.statistics).rate("ab") == pytest.approx(true_rate, rel=0.5)


def test_a_cross_join_makes_every_pair_in_the_window():
    query = query_of("ab", [], cross=True)
    epochs = epochs_of({"a": 4, "b": 2}, dict.fromkeys("ab", uniform(9)), 40)
    rate = Estimator(query, statistics_of(query, epochs)).rate("ab")
    assert rate == pytest.approx(2 * WINDOW * 4 * 2, rel=0.25)
