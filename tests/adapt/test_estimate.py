"""Estimates: near the truth where the sample can tell, and known to be unsure where it cannot."""

from __future__ import annotations

from itertools import combinations
from math import prod

import polars as pl
import pyarrow as pa
import pytest
from msgspec.structs import replace

from midstream.adapt.estimate import Estimator
from midstream.adapt.statistics import SECOND
from midstream.inline import InlineJoin
from midstream.protocol.settings import Settings
from midstream.query.query import Query
from tests.adapt.synthetic_streams import (
    Draw,
    Epoch,
    chain,
    clique,
    epochs_of,
    observe,
    query_of,
    skewed,
    uniform,
)

WINDOW = 20.0
RATES = {"a": 40.0, "b": 10.0, "c": 25.0, "d": 15.0}


def analytic(names: str, domain: int) -> float:
    """Rows in a second that streams with uniform keys make."""
    n = len(names)
    return n * (WINDOW / domain) ** (n - 1) * prod(RATES[name] for name in names)


def made_in_all(epochs: list[Epoch], after: float) -> float:
    """By Polars: pairs of a and b that come into being in a second, once so many seconds have passed."""
    a, b = (
        pl.DataFrame(pa.concat_tables([epoch[name] for epoch in epochs])).select(
            "k0", pl.col("t").dt.timestamp("us").alias(name)
        )
        for name in "ab"
    )
    pairs = a.join(b, on="k0").filter((pl.col("a") - pl.col("b")).abs() <= WINDOW * SECOND)
    newest = pl.max_horizontal("a", "b") / SECOND
    return pairs.filter(newest >= after).height / (2.5 * len(epochs) - after)


@pytest.mark.parametrize("domain", [50, 300])
def test_uniform_keys_give_as_many_pairs_and_triples_as_they_should(domain):
    query = query_of("abcd", clique("abcd"))
    known = observe(query, epochs_of(RATES, dict.fromkeys("abcd", uniform(domain)), 30))
    estimator = Estimator(query, known)
    for names in ("".join(n) for size in (1, 2, 3) for n in combinations("abcd", size)):
        assert estimator.rate(names) == pytest.approx(analytic(names, domain), rel=0.25), names
        assert estimator.estimate(names).confidence > 0.5, names


def test_where_only_few_of_the_keys_are_watched_estimates_scatter_around_the_truth():
    query = query_of("abc", clique("abc"))
    rates = {name: 40 * RATES[name] for name in "abc"}
    draws = dict.fromkeys("abc", uniform(20_000))
    known = [observe(query, epochs_of(rates, draws, 14, seed=seed)) for seed in range(8)]
    assert known[0].streams["a"].keys["a#k0"].threshold < 0.1
    for names in ("ab", "bc", "abc"):
        found = [Estimator(query, one).rate(names) for one in known]
        wanted = analytic(names, 20_000) * 40 ** len(names)
        assert sum(found) / len(found) == pytest.approx(wanted, rel=0.25), names
        assert all(wanted / 2 < one < wanted * 2 for one in found), names


def test_domains_that_overlap_in_part_match_in_part():
    query = query_of("ab", clique("ab"))
    draws = {"a": uniform(400), "b": uniform(400, first=300)}
    rate = Estimator(
        query, observe(query, epochs_of(RATES, {**draws, "c": uniform(9), "d": uniform(9)}, 40))
    ).rate("ab")
    assert rate == pytest.approx(analytic("ab", 400) / 4, rel=0.25)


@pytest.mark.parametrize("share", [0.05, 0.2])
@pytest.mark.parametrize("both", [True, False])
def test_a_key_with_a_large_share_is_accounted_for(share, both):
    query = query_of("ab", clique("ab"))
    draws: dict[str, Draw] = {"a": skewed(20_000, share), "b": skewed(20_000, share if both else 0.001)}
    epochs = epochs_of({"a": 400, "b": 200}, draws, 32)
    estimate = Estimator(query, observe(query, epochs, parts=2)).estimate("ab")
    assert estimate.value == pytest.approx(made_in_all(epochs, after=40), rel=0.3)


def test_many_frequent_keys_are_accounted_for():
    query = query_of("ab", clique("ab"))
    draw: Draw = lambda random, rows: (random.pareto(1.2, rows) * 40).astype("int64") % 10_000  # noqa: E731
    epochs = epochs_of({"a": 100, "b": 60}, {"a": draw, "b": draw}, 32)
    rate = Estimator(query, observe(query, epochs)).rate("ab")
    assert rate == pytest.approx(made_in_all(epochs, after=40), rel=0.3)


def test_streams_that_never_match_get_a_tiny_and_unsure_estimate():
    query = query_of("abc", clique("abc"))
    draws = {"a": uniform(300), "b": uniform(300, first=1000), "c": uniform(300)}
    estimator = Estimator(query, observe(query, epochs_of(RATES, {**draws, "d": uniform(9)}, 30)))
    for names in ("ab", "bc", "abc"):
        found = estimator.estimate(names)
        assert 0 < found.value < 0.03 * analytic(names, 300), names
        assert found.confidence < 0.1, names
    assert estimator.estimate("ac").confidence > 0.5


def test_several_classes_multiply_and_make_unsure():
    both = query_of("ab", ["a.k0 = b.k0", "a.k1 = b.k1"])
    draws = dict.fromkeys("ab", (uniform(30), uniform(20)))
    epochs = epochs_of({"a": 40, "b": 10}, draws, 30)
    found = Estimator(both, observe(both, epochs)).estimate("ab")
    assert found.value == pytest.approx(analytic("ab", 600), rel=0.25)
    alone = query_of("ab", clique("ab"))
    assert found.confidence <= 0.5 < Estimator(alone, observe(alone, epochs)).estimate("ab").confidence


def test_a_chain_of_classes_multiplies_along_the_chain():
    query = query_of("abc", chain("abc"))
    draws = dict.fromkeys("abcd", (uniform(60), uniform(150)))
    estimator = Estimator(query, observe(query, epochs_of(RATES, draws, 30)))
    pairs, every = 2 * WINDOW, 3 * WINDOW**2
    assert estimator.rate("ab") == pytest.approx(pairs * 40 * 10 / 60, rel=0.25)
    assert estimator.rate("bc") == pytest.approx(pairs * 10 * 25 / 150, rel=0.25)
    assert estimator.rate("ac") == pytest.approx(pairs * 40 * 25, rel=0.25)
    assert estimator.rate("abc") == pytest.approx(every * 40 * 10 * 25 / 60 / 150, rel=0.3)


def running(query: Query, epochs: list[Epoch], plan: str) -> tuple[InlineJoin, list[int]]:
    """A plan that has run, and the results of each epoch."""
    join = InlineJoin(query, plan, settings=Settings(1, 1))
    return join, [join.run_epoch(epoch).num_rows for epoch in epochs]


PAIRS: dict[str, dict[tuple[str, str], float]] = {
    "abc": {("a", "b"): 5, ("b", "c"): 15},
    "abcd": {("a", "b"): 1, ("b", "c"): 20, ("c", "d"): 1},
}


@pytest.mark.parametrize("names", PAIRS)
def test_windows_that_differ_between_pairs_are_heeded(names):
    query = query_of(names, clique(names), None, PAIRS[names])
    epochs = epochs_of({n: RATES[n] for n in names}, dict.fromkeys(names, uniform(30)), 32)
    estimator = Estimator(query, observe(query, epochs))
    for (a, b), bound in PAIRS[names].items():
        assert estimator.rate((a, b)) == pytest.approx(2 * bound * RATES[a] * RATES[b] / 30, rel=0.25)
    _, results = running(query, epochs, " ".join(names))
    assert estimator.rate(names) == pytest.approx(sum(results[16:]) / 40, rel=0.5)


def test_what_a_state_holds_is_known_with_windows_that_differ():
    query = query_of("abc", clique("abc"), None, {("a", "b"): 1, ("b", "c"): 30})
    epochs = epochs_of({n: RATES[n] for n in "abc"}, dict.fromkeys("abc", uniform(60)), 32)
    join, _ = running(query, epochs, "(a b) c")
    estimator = Estimator(query, replace(join.manifest.statistics, made={}, observed_seconds=0.0))
    for state in ("a", "b", "c", "a,b"):
        stored = sum(
            s.rows for s in join.manifest.slices if s.owner.kind == "index" and s.owner.state == state
        )
        assert estimator.stored_rows(state.split(",")) == pytest.approx(stored, rel=0.4), state


def test_estimates_get_surer_with_more_data():
    query = query_of("ab", clique("ab"), 600)
    epochs = epochs_of({"a": 4, "b": 1}, dict.fromkeys("ab", uniform(400)), 200)
    confidence = [
        Estimator(query, observe(query, epochs[:n])).estimate("ab").confidence for n in (3, 10, 40, 200)
    ]
    assert confidence == sorted(confidence)
    assert confidence[0] < 0.5 < confidence[-1]


def test_a_condition_is_guessed_until_the_running_plan_has_shown_what_it_leaves():
    query = query_of("abc", [*clique("abc"), "a.k1 < b.k1"])
    # The condition leaves a sixteenth of the pairs.
    draws = {"a": [uniform(60), uniform(80)], "b": [uniform(60), uniform(11)], "c": [uniform(60)]}
    epochs = epochs_of({n: RATES[n] for n in "abc"}, draws, 40)
    left = sum(max(0, v) for v in range(11)) / (11 * 80)
    join, results = running(query, epochs, "(a b) c")
    known = join.manifest.statistics
    true = {"ab": analytic("ab", 60) * left, "abc": sum(results[20:]) / 50}
    guessed = Estimator(query, replace(known, made={}, observed_seconds=0.0))
    seen = Estimator(query, known)
    for names, wanted in true.items():
        assert guessed.rate(names) > 3 * wanted, names
        assert seen.rate(names) == pytest.approx(wanted, rel=0.3), names
    assert seen.estimate("ab").confidence == 1
    # What was seen of a part counts for the whole.
    part = Estimator(query, replace(known, made={"a,b": known.made["a,b"]}))
    assert part.rate("abc") == pytest.approx(true["abc"], rel=0.3)


def test_what_a_plan_made_is_not_forgotten_in_an_epoch_in_which_it_makes_nothing():
    query = query_of("ab", [*clique("ab"), "a.k1 < b.k1"])
    draws = {"a": (uniform(60), uniform(80)), "b": (uniform(60), uniform(11))}
    epochs = epochs_of({"a": 6, "b": 4}, draws, 60, seconds=1)
    join, results = running(query, epochs, "a b")
    assert 0 in results[40:]
    wanted = sum(results[20:]) / 40
    assert Estimator(query, join.manifest.statistics).rate("ab") == pytest.approx(wanted, rel=0.5)


def test_a_cross_join_makes_every_pair_in_the_window():
    query = query_of("ab", [], cross=True)
    epochs = epochs_of({"a": 4, "b": 2}, dict.fromkeys("ab", uniform(9)), 40)
    found = Estimator(query, observe(query, epochs)).estimate("ab")
    assert found.value == pytest.approx(2 * WINDOW * 4 * 2, rel=0.25)
