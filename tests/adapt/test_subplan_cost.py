"""The search adds up what a plan costs without laying it out, and comes to the cost of its layout."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache

import numpy as np
import pytest
from msgspec.structs import replace

from midstream.adapt import cost as cost_model
from midstream.adapt.estimate import Estimator
from midstream.adapt.plan_cost import cost_of, plan_cost
from midstream.adapt.subplan_cost import SubplanCosts
from midstream.plan.build_layout import build_layout
from midstream.plan.tree import all_plans, parse_plan
from midstream.state.costs import DEFAULT_WEIGHTS, Calibration, CostWeights
from tests.adapt.synthetic_streams import (
    SHAPES,
    double_chain,
    epochs_of,
    in_any_order,
    query_of,
    statistics_of,
    uniform,
)

EQUAL = 1e-9
"""Relative: rounding may differ, nothing else."""


def overlapping(names: Sequence[str]) -> list[str]:
    """Streams that share several key classes, so that a node can be placed in more than one way."""
    on = ["a.k0 = b.k0", "a.k1 = b.k1", "a.k1 = c.k1", "b.k0 = d.k0", "d.k2 = e.k2", "c.k2 = d.k2"]
    return [equality for equality in on if {equality[0], equality[7]} <= set(names)]


def without_keys(names: Sequence[str]) -> list[str]:
    return []


def two_components(names: Sequence[str]) -> list[str]:
    return [f"{a}.k0 = {b}.k0" for a, b in zip(names[::2], names[2::2], strict=False)]


QUERIES: dict[str, Callable[[Sequence[str]], list[str]]] = {
    **SHAPES,
    "double chain": double_chain,
    "overlapping": overlapping,
    "without keys": without_keys,
    "two components": two_components,
}
# Only migrations scan rows.
WEIGHTS = [kind for kind in CostWeights.__struct_fields__ if kind != "scanned_rows"]
CONSTANTS = ["EXPIRED_CANDIDATE_FACTOR", "INDEX_VALUE_BYTES"]


@cache
def estimator_of(names: str, query: str) -> Estimator:
    random = np.random.default_rng(len(names))
    rates = {name: float(random.choice([2, 5, 20, 60])) for name in names}
    draws = {name: [uniform(int(random.choice([10, 40, 150]))) for _ in range(4)] for name in names}
    built = query_of(names, QUERIES[query](names), window=20, cross=True)
    return Estimator(built, statistics_of(built, epochs_of(rates, draws, 6, seconds=10), seconds=10))


@pytest.mark.parametrize("partitions", [1, 3])
@pytest.mark.parametrize("query", QUERIES)
@pytest.mark.parametrize("names", ["ab", "abc", "abcd", "abcde"])
def test_every_plan_costs_the_search_what_its_layout_costs(names, query, partitions):
    estimator = estimator_of(names, query)
    costs = SubplanCosts(estimator, partitions)
    for plan in all_plans(names):
        expected = plan_cost(plan, estimator, partitions)
        assert costs.of_plan(plan) == pytest.approx(expected, rel=EQUAL), str(plan)


@pytest.mark.parametrize("query", QUERIES)
def test_whatever_the_order_of_inputs(query):
    estimator = estimator_of("abcd", query)
    costs = SubplanCosts(estimator, 2)
    orders = [order for plan in all_plans("abcd") for order in in_any_order(plan, pairs=True)]
    assert len(orders) > 100
    for plan in orders:
        assert costs.of_plan(plan) == pytest.approx(plan_cost(plan, estimator, 2), rel=EQUAL), str(plan)


def with_weights(estimator: Estimator, **weights: float) -> Estimator:
    calibration = Calibration(weights=replace(DEFAULT_WEIGHTS, **weights))
    return Estimator(estimator.query, replace(estimator.statistics, calibration=calibration))


@pytest.mark.parametrize("changed", [*WEIGHTS, *CONSTANTS])
def test_costs_of_plans_and_of_their_parts_have_the_same_weights(changed, monkeypatch):
    estimator = estimator_of("abcd", "chain")
    plans = list(all_plans("abcd"))
    before = [plan_cost(plan, estimator, 2) for plan in plans]
    if changed in CONSTANTS:
        monkeypatch.setattr(cost_model, changed, 7 * getattr(cost_model, changed))
    else:
        estimator = with_weights(estimator, **{changed: 7 * getattr(DEFAULT_WEIGHTS, changed)})
    costs = SubplanCosts(estimator, 2)
    after = [plan_cost(plan, estimator, 2) for plan in plans]
    assert any(new > old for new, old in zip(after, before, strict=True))
    assert [costs.of_plan(plan) for plan in plans] == pytest.approx(after, rel=EQUAL)


def test_the_compared_plans_have_all_that_costs_depend_on():
    """Stages, fragments without a key, states with two indexes, and fragments that a node has to leave."""
    chain = estimator_of("abcde", "chain").query
    layouts = [build_layout(chain, plan) for plan in all_plans("abcde")]
    assert {layout.stages for layout in layouts} == {1, 2, 3, 4}
    fragments = [fragment for layout in layouts for fragment in layout.fragments]
    assert {bool(fragment.key) for fragment in fragments} == {True, False}
    assert max(len(keys) for fragment in fragments for keys in fragment.arrangements.values()) > 1
    assert any(len(f.nodes) > 1 and f.stage > 0 for f in fragments), "streams that enter a later stage"
    query = estimator_of("abcd", "overlapping").query
    above = build_layout(query, parse_plan("((a c) b) d", query.names))
    assert [[node.id for node in f.nodes] for f in above.fragments] == [["a,c"], ["a,b,c", "a,b,c,d"]]
    alone = estimator_of("abc", "overlapping").query
    below = build_layout(alone, parse_plan("(a c) b", alone.names))
    assert [[node.id for node in f.nodes] for f in below.fragments] == [["a,c", "a,b,c"]]


def test_a_stage_is_charged_once_however_many_subplans_have_it():
    estimator = estimator_of("abcd", "chain")
    layout = build_layout(estimator.query, parse_plan("(a b) (c d)", "abcd"))
    assert len(layout.fragments) == 3
    assert cost_of(layout, estimator, 1).stages == pytest.approx(estimator.epochs_per_second)
