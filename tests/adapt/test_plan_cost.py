"""What plans are thought to cost goes with what they turn out to do."""

from __future__ import annotations

from dataclasses import replace as replace_fields
from functools import cache

import numpy as np
import pytest
from msgspec.structs import replace

from midstream.adapt.cost import UNITS_PER_SHUFFLED_ROW, Cost, work_in_units
from midstream.adapt.estimate import Estimator
from midstream.adapt.optimizer import best_plan
from midstream.adapt.plan_cost import cost_of
from midstream.inline import InlineJoin
from midstream.plan.build_layout import build_layout
from midstream.plan.tree import Plan, all_plans, parse_plan
from midstream.protocol.settings import Settings
from midstream.query.query import Query
from midstream.state.statistics import Statistics
from tests.adapt.synthetic_streams import SHAPES, Draw, Epoch, epochs_of, observe, query_of, skewed, uniform

NAMES = "abcd"
RATES = {"a": 40.0, "b": 10.0, "c": 25.0, "d": 15.0}
EPOCHS = 6
STEADY = 3
SECONDS = 5.0


DOMAINS = {"a": 150, "b": 300, "c": 75, "d": 150}
DRAWS: dict[str, Draw] = {name: uniform(domain) for name, domain in DOMAINS.items()}


def is_connected(query: Query, node: Plan) -> bool:
    """Whether the inputs of a node can be put together without a cross product."""
    seen, rest = node.inputs[0].streams, [child.streams for child in node.inputs[1:]]
    while rest:
        following = next((s for s in rest if query.classes_of(seen) & query.classes_of(s)), None)
        if following is None:
            return False
        rest.remove(following)
        seen |= following
    return True


def spearman(x: list[float], y: list[float]) -> float:
    """The correlation of ranks; equal figures share theirs."""

    def ranks(values: list[float]) -> list[float]:
        _, group, counts = np.unique(np.round(values, 6), return_inverse=True, return_counts=True)
        return (np.cumsum(counts) - (counts - 1) / 2)[group].tolist()  # type: ignore[no-any-return]

    return float(np.corrcoef(ranks(x), ranks(y))[0, 1])


def work_of(query: Query, plan: Plan, epochs: list[Epoch]) -> tuple[float, Statistics]:
    """What a plan did in a second of the steady epochs, as costs are counted, and what it saw."""
    run = InlineJoin(query, plan, settings=Settings(1, 1))
    layout = build_layout(query, plan)
    stages = {one.id: f.stage for f in layout.fragments for one in f.inputs if one.is_stream}
    done = 0.0
    for number, epoch in enumerate(epochs):
        run.run_epoch(epoch)
        if number >= STEADY:
            done += work_in_units(run.report.work)
            done += sum(
                UNITS_PER_SHUFFLED_ROW * table.num_rows * (1 + stages[name]) for name, table in epoch.items()
            )
    return done / (SECONDS * (len(epochs) - STEADY)), run.manifest.statistics


@cache
def measured(shape: str) -> tuple[Query, Statistics, dict[Plan, float]]:
    """Every plan without cross products and what it did."""
    query = query_of(NAMES, SHAPES[shape](NAMES), window=10)
    epochs = epochs_of(RATES, DRAWS, EPOCHS, SECONDS, seed=5)
    plans = [p for p in all_plans(NAMES) if all(is_connected(query, node) for node in p.nodes())]
    work, known = {}, Statistics()
    for plan in plans:
        work[plan], known = work_of(query, plan, epochs)
    # Nothing but the samples: what one plan made is of no help with the others.
    return query, replace(known, made={}, observed_seconds=0.0), work


def counted(cost: Cost) -> float:
    """What the tasks count too."""
    return replace_fields(cost, stages=0, stored_bytes=0).units


@pytest.mark.parametrize("shape", SHAPES)
def test_plans_are_ranked_by_what_they_do(shape):
    query, known, work = measured(shape)
    estimator = Estimator(query, known)
    thought = [counted(cost_of(build_layout(query, plan), estimator, 1)) for plan in work]
    assert len(work) > 10
    assert max(work.values()) > 1.5 * min(work.values()), "plans that are all alike rank at random"
    assert spearman(thought, list(work.values())) > 0.9


@pytest.mark.parametrize("shape", SHAPES)
def test_costs_are_about_what_is_done(shape):
    query, known, work = measured(shape)
    estimator = Estimator(query, known)
    ratios = [counted(cost_of(build_layout(query, plan), estimator, 1)) / done for plan, done in work.items()]
    assert min(ratios) > 0.67
    assert max(ratios) < 1.5


@pytest.mark.parametrize("shape", SHAPES)
def test_the_best_plan_does_about_least(shape):
    query, known, work = measured(shape)
    best = best_plan(Estimator(query, known), 1).plan
    nodes = {frozenset(node.streams for node in plan.nodes()): done for plan, done in work.items()}
    assert nodes[frozenset(node.streams for node in best.nodes())] <= 1.25 * min(work.values())


@pytest.mark.parametrize("plan", ["((a b) c) d", "a (c (b d))"])
def test_costs_are_about_what_is_done_though_a_key_is_frequent(plan):
    query = query_of(NAMES, SHAPES["clique"](NAMES), window=10)
    draws = {name: skewed(domain, 0.1) for name, domain in DOMAINS.items()}
    done, known = work_of(query, parse_plan(plan, NAMES), epochs_of(RATES, draws, EPOCHS, SECONDS))
    estimator = Estimator(query, replace(known, made={}, observed_seconds=0.0))
    thought = counted(cost_of(build_layout(query, parse_plan(plan, NAMES)), estimator, 1))
    # Of the frequent key there are some twenty rows of each stream, which four streams multiply.
    assert 0.5 < thought / done < 2


def test_a_node_without_a_common_key_costs_as_many_times_as_partitions_wait_for_it():
    query = query_of("abc", SHAPES["chain"]("abc"))
    known = observe(query, epochs_of(RATES, DRAWS, 10))
    estimator = Estimator(query, known)
    many_way = build_layout(query, parse_plan("a b c", query.names))
    binary = build_layout(query, parse_plan("(a b) c", query.names))
    one, eight = (cost_of(many_way, estimator, partitions) for partitions in (1, 8))
    assert eight.units == pytest.approx(8 * one.units)
    assert cost_of(binary, estimator, 8) == cost_of(binary, estimator, 1)
    assert cost_of(binary, estimator, 1).stages > 0 == one.stages
