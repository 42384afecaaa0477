"""The error of a comparison of two plans: what both have in common cancels out, and the rest is as stated."""

from __future__ import annotations

import math

import numpy as np
import pytest

from midstream.adapt.cost_error import log_ratio_error
from midstream.adapt.estimate import Estimator
from midstream.adapt.plan_cost import cost_of, cost_terms
from midstream.plan.build_layout import build_layout
from midstream.plan.tree import parse_plan
from midstream.state.costs import DEFAULT_WEIGHTS, Cost
from tests.adapt.synthetic_streams import SHAPES, clique, epochs_of, query_of, statistics_of, uniform

NAMES = "abcde"
QUERY = query_of(NAMES, clique(NAMES), window=8)
SAME_SHAPE = [
    ("(a b) c d e", "(c d) a b e"),
    ("a b c d e", "e d c b a"),
    ("((a b) c) d e", "((c d) e) a b"),
    ("(a b) (c d) e", "(a c) (b e) d"),
]


def estimator(seed: int = 0, epochs: int = 12) -> Estimator:
    """Estimates of streams that are alike."""
    rates, draws = dict.fromkeys(NAMES, 4.0), dict.fromkeys(NAMES, uniform(20))
    return Estimator(QUERY, statistics_of(QUERY, epochs_of(rates, draws, epochs, 2.0, seed=seed), 2.0))


def ratio(one: str, other: str, estimates: Estimator) -> tuple[float, float]:
    """The logarithm of the ratio of the costs of two plans, and its error."""
    layouts = [build_layout(QUERY, parse_plan(plan, QUERY.names)) for plan in (one, other)]
    terms = [cost_terms(layout, estimates, 1) for layout in layouts]
    costs = [cost_of(layout, estimates, 1).units(DEFAULT_WEIGHTS) for layout in layouts]
    return math.log(costs[0] / costs[1]), log_ratio_error(*terms, estimator=estimates)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("plan", ["((a b) c) d", "a b c d", "(a b) (c d)"])
def test_the_terms_add_up_to_the_cost_and_grow_with_their_join(shape, plan):
    query = query_of("abcd", SHAPES[shape]("abcd"))
    rates = dict.fromkeys("abcd", 5.0)
    statistics = statistics_of(query, epochs_of(rates, dict.fromkeys("abcd", uniform(30)), 10))
    estimates, layout = Estimator(query, statistics), build_layout(query, parse_plan(plan, query.names))
    terms = cost_terms(layout, estimates, 3)
    assert math.isclose(
        cost_of(layout, estimates, 3).units(DEFAULT_WEIGHTS),
        math.fsum(c.units(DEFAULT_WEIGHTS) for c in terms.values()),
    )
    doubled = Estimator(query, statistics)
    for streams in terms:
        if streams:
            estimate = estimates.estimate(streams)
            doubled._estimates[streams] = type(estimate)(2 * estimate.value, estimate.error)
    grown = cost_terms(layout, doubled, 3)
    for streams, cost in terms.items():
        assert math.isclose(
            grown[streams].units(DEFAULT_WEIGHTS), cost.units(DEFAULT_WEIGHTS) * (2 if streams else 1)
        ), streams


def test_what_two_plans_have_in_common_has_no_error():
    estimates = estimator()
    assert ratio("(a b) c d e", "(a b) c d e", estimates)[1] == 0
    alike, different = (
        ratio("((a b) c) d e", other, estimates)[1] for other in ("((a b) c) e d", "(e d) a b c")
    )
    assert alike < different / 2


def test_a_join_of_which_nothing_is_known_has_a_bounded_error():
    estimates = estimator()
    known, unknown = frozenset("ab"), frozenset("cd")
    estimates._estimates[unknown] = type(estimates.estimate("ab"))(1.0, 20.0)
    assert log_ratio_error({unknown: Cost(probes=1)}, {known: Cost(probes=1)}, estimator=estimates) < 1.5


def test_comparisons_are_as_sure_as_they_are_said_to_be():
    # Plans of the same shape over streams that are alike cost the same: what differs is error.
    errors = [ratio(*pair, estimator(seed)) for seed in range(40) for pair in SAME_SHAPE]
    differences = np.array([difference / error for difference, error in errors])
    assert 0.8 < np.sqrt(np.mean(differences**2)) < 1.25
    assert np.mean(np.abs(differences) < 1) > 0.6
    assert np.abs(differences).max() < 4


def test_more_rows_make_a_comparison_surer():
    few, many = (ratio(*SAME_SHAPE[0], estimator(epochs=epochs))[1] for epochs in (3, 12))
    assert many < few
