"""Estimated costs of plans compared with the work that their tasks count."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from msgspec.structs import replace

from midstream.adapt.cost import work_in_units
from midstream.adapt.estimate import Estimator
from midstream.adapt.optimizer import best_plan
from midstream.adapt.plan_cost import cost_of
from midstream.inline import InlineJoin
from midstream.plan.build_layout import build_layout
from midstream.plan.tree import Plan, parse_plan
from midstream.protocol.settings import Settings
from midstream.query.query import Query
from midstream.state.costs import DEFAULT_WEIGHTS, Cost
from midstream.state.statistics import Statistics
from tests.adapt.synthetic_streams import (
    SHAPES,
    DrawKeys,
    Epoch,
    epochs_of,
    query_of,
    skewed,
    statistics_of,
    uniform,
)
from tests.connected_plans import connected_plans

NAMES = "abcd"
RATES = {"a": 40.0, "b": 10.0, "c": 25.0, "d": 15.0}
EPOCHS = 6
WARM_UP = 3
"""Epochs in which states fill; only those after them are measured."""
EPOCH_SECONDS = 5.0
DOMAINS = {"a": 150, "b": 300, "c": 75, "d": 150}
DRAWS: dict[str, DrawKeys] = {name: uniform(domain) for name, domain in DOMAINS.items()}


def spearman(x: list[float], y: list[float]) -> float:
    """The rank correlation; equal values share a rank."""

    def ranks(values: list[float]) -> list[float]:
        _, group, counts = np.unique(np.round(values, 6), return_inverse=True, return_counts=True)
        return (np.cumsum(counts) - (counts - 1) / 2)[group].tolist()  # type: ignore[no-any-return]

    return float(np.corrcoef(ranks(x), ranks(y))[0, 1])


def work_of(query: Query, plan: Plan, epochs: list[Epoch]) -> tuple[float, Statistics]:
    """Units of work per second that a plan did in the measured epochs, and the statistics after them."""
    run = InlineJoin(query, plan, settings=Settings(1, 1))
    layout = build_layout(query, plan)
    stages = {str(one.id): f.stage for f in layout.fragments for one in f.inputs if one.is_stream}
    work = 0.0
    for number, epoch in enumerate(epochs):
        run.run_epoch(epoch)
        if number >= WARM_UP:
            work += work_in_units(run.report.work)
            work += sum(
                DEFAULT_WEIGHTS.sent_rows * table.num_rows * (1 + stages[name])
                for name, table in epoch.items()
            )
    return work / (EPOCH_SECONDS * (len(epochs) - WARM_UP)), run.manifest.statistics


@cache
def measured_work(shape: str) -> tuple[Query, Statistics, dict[Plan, float]]:
    """Statistics, and the work of every plan without cross products."""
    query = query_of(NAMES, SHAPES[shape](NAMES), window=10)
    epochs = epochs_of(RATES, DRAWS, EPOCHS, EPOCH_SECONDS, seed=5)
    plans = connected_plans(query)
    work, statistics = {}, Statistics()
    for plan in plans:
        work[plan], statistics = work_of(query, plan, epochs)
    return query, only_samples(statistics), work


def only_samples(statistics: Statistics) -> Statistics:
    """Without the rows that the running plan produced, which would correct the estimates of its own joins."""
    return replace(statistics, produced={}, observed_seconds=0.0)


def counted_units(cost: Cost) -> float:
    """The part of a cost that tasks count as well."""
    return replace(cost, stages=0.0, stored_bytes=0.0).units(DEFAULT_WEIGHTS)


@pytest.mark.parametrize("shape", SHAPES)
def test_plans_are_ranked_as_by_their_work(shape):
    query, statistics, work = measured_work(shape)
    estimator = Estimator(query, statistics)
    costs = [counted_units(cost_of(build_layout(query, plan), estimator, 1)) for plan in work]
    assert len(work) > 10
    assert max(work.values()) > 1.5 * min(work.values()), "equal plans would rank at random"
    assert spearman(costs, list(work.values())) > 0.9


@pytest.mark.parametrize("shape", SHAPES)
def test_costs_are_close_to_the_work(shape):
    query, statistics, work = measured_work(shape)
    estimator = Estimator(query, statistics)
    ratios = [
        counted_units(cost_of(build_layout(query, plan), estimator, 1)) / done for plan, done in work.items()
    ]
    assert min(ratios) > 0.67
    assert max(ratios) < 1.5


@pytest.mark.parametrize("shape", SHAPES)
def test_the_best_plan_does_hardly_more_work_than_the_one_with_the_least(shape):
    query, statistics, work = measured_work(shape)
    best = best_plan(Estimator(query, statistics), 1).plan
    # The same tree with inputs in the order of ``all_plans``.
    by_nodes = {frozenset(node.streams for node in plan.nodes()): done for plan, done in work.items()}
    assert by_nodes[frozenset(node.streams for node in best.nodes())] <= 1.25 * min(work.values())


@pytest.mark.parametrize("plan", ["((a b) c) d", "a (c (b d))"])
def test_costs_are_close_to_the_work_though_a_key_is_hot(plan):
    query = query_of(NAMES, SHAPES["clique"](NAMES), window=10)
    draws = {name: skewed(domain, 0.1) for name, domain in DOMAINS.items()}
    epochs = epochs_of(RATES, draws, EPOCHS, EPOCH_SECONDS)
    work, statistics = work_of(query, parse_plan(plan, NAMES), epochs)
    estimator = Estimator(query, only_samples(statistics))
    cost = counted_units(cost_of(build_layout(query, parse_plan(plan, NAMES)), estimator, 1))
    # Of the hot key there are some twenty rows of each stream, which four streams multiply.
    assert 0.5 < cost / work < 2


def test_the_work_of_a_node_without_a_common_key_counts_for_all_partitions_that_wait():
    query = query_of("abc", SHAPES["chain"]("abc"))
    estimator = Estimator(query, statistics_of(query, epochs_of(RATES, DRAWS, 10)))
    many_way = build_layout(query, parse_plan("a b c", query.names))
    binary = build_layout(query, parse_plan("(a b) c", query.names))
    one, eight = (cost_of(many_way, estimator, partitions) for partitions in (1, 8))
    assert eight.units(DEFAULT_WEIGHTS) == pytest.approx(8 * one.units(DEFAULT_WEIGHTS))
    assert cost_of(binary, estimator, 8) == cost_of(binary, estimator, 1)
    assert cost_of(binary, estimator, 1).stages > 0 == one.stages
