"""Estimated costs of migrations, compared with counted work, and the choice of a strategy by them."""

from __future__ import annotations

import random
from functools import cache
from itertools import pairwise

import pytest
from msgspec.structs import replace

from midstream.adapt.cost import work_in_units
from midstream.adapt.estimate import Estimator
from midstream.adapt.migration_cost import UNNOTICEABLE_SLOWDOWN, MigrationCost, migration_costs
from midstream.adapt.policy import Goal, MigrationPolicy, allowed_migrations, best_migration, pick
from midstream.engine.program import Program
from midstream.inline import InlineJoin
from midstream.migration.lifecycle import ROWS_MOVED_AT_ONCE
from midstream.migration.state_match import match_states
from midstream.migration.strategies import STRATEGIES
from midstream.plan.build_layout import build_layout
from midstream.plan.tree import parse_plan
from midstream.protocol.epoch_statistics import work_done
from midstream.protocol.report import Report
from midstream.protocol.settings import Settings
from midstream.query.query import Query
from midstream.state.costs import DEFAULT_WEIGHTS, Calibration, Cost
from midstream.state.statistics import Statistics
from midstream.storage.memory_store import MemoryStore
from midstream.testing.draw_plans import draw_plan, draw_requests
from tests.adapt.synthetic_streams import (
    Epoch,
    chain,
    clique,
    epochs_of,
    query_of,
    star,
    statistics_of,
    uniform,
)

NAMES = "abcd"
QUERY = query_of(NAMES, clique(NAMES), window=20)
RATES = dict.fromkeys(NAMES, 8.0)
# Rows of a have few matches: a good plan begins with them.
KEYS = {"a": uniform(600), **dict.fromkeys("bcd", uniform(40))}
GOOD, EXPENSIVE = "((a b) c) d", "a (b (c d))"
WARM_UP, MEASURED = 16, 12
"""Epochs before and after the migration begins."""
EPOCHS = epochs_of(RATES, KEYS, WARM_UP + MEASURED)


def warmed_up(plan: str) -> tuple[InlineJoin, MemoryStore]:
    """A query that has run by a plan for two windows, and its store."""
    store = MemoryStore()
    join = InlineJoin(QUERY, plan, settings=Settings(1, 1), store=store)
    for epoch in EPOCHS[:WARM_UP]:
        join.run_epoch(epoch)
    return join, store


def chosen_migration(old: str, new: str, policy: MigrationPolicy) -> MigrationCost:
    join, _ = warmed_up(old)
    layout = join.coordinator.layout(join.manifest)
    return best_migration(layout, parse_plan(new, NAMES), join.manifest.statistics, QUERY, policy)


def test_plans_are_isolated_if_the_old_plan_is_cheaper_for_old_rows():
    policy = MigrationPolicy("hybrid", background=False)
    assert chosen_migration(GOOD, EXPENSIVE, policy).isolated
    assert not chosen_migration(EXPENSIVE, GOOD, policy).isolated


@pytest.mark.parametrize(("old", "new"), [(GOOD, EXPENSIVE), (EXPENSIVE, GOOD)])
def test_a_request_that_does_not_say_isolates_plans_where_that_is_cheaper(old: str, new: str):
    join, _ = warmed_up(old)
    join.migrate(new, "hybrid", background="off")
    join.run_epoch(EPOCHS[WARM_UP])
    migration = join.manifest.migration
    assert migration is not None
    assert migration.isolated is (new == EXPENSIVE)


@pytest.fixture
def programs(monkeypatch) -> list[Program]:
    """The programs of all epochs that are run."""
    found: list[Program] = []

    def work_done_and_program(program: Program, report: Report) -> Cost:
        found.append(program)
        return work_done(program, report)

    monkeypatch.setattr("midstream.protocol.coordinator.work_done", work_done_and_program)
    return found


def check_costs(
    programs: list[Program],
    query: Query,
    epochs: list[Epoch],
    old: str,
    new: str,
    settings: Settings,
    error: float,
) -> None:
    """Check that estimated costs of all strategies differ as their counted work does.

    The ``error`` may be this share of the largest difference.
    """
    store = MemoryStore()
    join = InlineJoin(query, old, settings=settings, store=store)
    for epoch in epochs[:WARM_UP]:
        join.run_epoch(epoch)
    counted: dict[str, tuple[float, int]] = {}
    for stage_weight in (0.0, DEFAULT_WEIGHTS.stages):  # stages outweigh all else in so small a query
        weights = replace(DEFAULT_WEIGHTS, stages=stage_weight)
        statistics = replace(join.manifest.statistics, calibration=Calibration(weights=weights))
        layout, plan = join.coordinator.layout(join.manifest), parse_plan(new, NAMES)
        costs = migration_costs(layout, plan, Estimator(query, statistics))
        assert len(costs) == 5
        for cost in costs:
            if variant(cost) not in counted:
                run = InlineJoin(query, settings=settings, store=MemoryStore(dict(store.files)))
                counted[variant(cost)] = counted_work(run, epochs[WARM_UP:], new, cost, programs)
        done = {
            cost: work + stage_weight * stages for cost in costs for work, stages in [counted[variant(cost)]]
        }
        # Counted work includes what the new plan does anyway, so that only differences can be compared.
        cheapest = min(costs, key=lambda cost: done[cost])
        additional_work = {cost: done[cost] - done[cheapest] for cost in costs}
        tolerance = error * max(additional_work.values())
        for cost in costs:
            assert cost.work - cheapest.work == pytest.approx(additional_work[cost], abs=tolerance), cost


def variant(cost: MigrationCost) -> str:
    """What distinguishes ways to migrate."""
    return f"{cost.strategy} {cost.background} {cost.isolated}"


def counted_work(
    run: InlineJoin, epochs: list[Epoch], new: str, cost: MigrationCost, programs: list[Program]
) -> tuple[float, int]:
    """The work of a migration and of some epochs, without stages, and how many stages these had."""
    run.migrate(new, cost.strategy, background="auto" if cost.background else "off", isolated=cost.isolated)
    work, stages = 0.0, 0
    for epoch in epochs:
        run.run_epoch(epoch, background_epochs=1)
        work += work_in_units(run.report.work)
        stages += programs[-1].stages
    return work, stages


@pytest.mark.parametrize(("old", "new"), [(GOOD, EXPENSIVE), (EXPENSIVE, GOOD)])
def test_costs_of_migrations_differ_as_their_counted_work_does(programs, old: str, new: str):
    check_costs(programs, QUERY, EPOCHS, old, new, Settings(1, 1), error=0.35)


@pytest.mark.parametrize("rows_moved_at_once", [0, ROWS_MOVED_AT_ONCE])
@pytest.mark.parametrize(
    ("on", "old", "new"),
    [
        (star(NAMES), "((a b) c) d", "((a b) d) c"),
        (chain(NAMES), "((a b) c) d", "(a b) (c d)"),
    ],
)
def test_costs_of_migrations_with_several_keys_differ_as_their_counted_work_does(
    programs, monkeypatch, on, old: str, new: str, rows_moved_at_once: int
):
    monkeypatch.setattr("midstream.adapt.migration_cost.ROWS_MOVED_AT_ONCE", rows_moved_at_once)
    epochs = epochs_of(RATES, dict.fromkeys(NAMES, uniform(60)), WARM_UP + MEASURED)
    settings = Settings(1, 1, rows_moved_at_once=rows_moved_at_once)
    check_costs(programs, query_of(NAMES, on, window=20), epochs, old, new, settings, error=0.6)


def test_slowdown_is_largest_if_states_are_computed_at_once_and_least_with_isolated_plans():
    join, _ = warmed_up(GOOD)
    estimator = Estimator(QUERY, join.manifest.statistics)
    layout = join.coordinator.layout(join.manifest)
    waiting, background, isolated, moving_state, parallel_track = (
        cost.peak_slowdown for cost in migration_costs(layout, parse_plan(EXPENSIVE, NAMES), estimator)
    )
    assert isolated <= parallel_track
    assert isolated < waiting < moving_state
    assert background < moving_state
    no_change = migration_costs(layout, parse_plan(GOOD, NAMES), estimator)
    assert min(cost.peak_slowdown for cost in no_change) == UNNOTICEABLE_SLOWDOWN


@pytest.mark.parametrize(
    ("goal", "expected"), [("steady", "hybrid"), ("cheap", "parallel_track"), ("quick", "moving_state")]
)
def test_each_goal_picks_its_own_migration(goal: Goal, expected: str):
    steady = MigrationCost(strategy="hybrid", background=False, work=5.0, seconds=20.0, peak_slowdown=1.1)
    more_work = MigrationCost(strategy="hybrid", background=True, work=6.0, seconds=10.0, peak_slowdown=1.1)
    quick = MigrationCost(strategy="moving_state", background=False, work=5.0, seconds=0.0, peak_slowdown=3.0)
    cheap = MigrationCost(
        strategy="parallel_track",
        background=False,
        work=1.0,
        seconds=20.0,
        peak_slowdown=1.1,
        defers_results=True,
    )
    picked = pick([more_work, steady, quick, cheap], goal)
    assert picked.strategy == expected
    assert picked != more_work


def test_a_requested_strategy_is_used_even_without_statistics():
    join = InlineJoin(QUERY, GOOD, settings=Settings(1, 1))
    layout = join.coordinator.layout(join.manifest)
    plan = parse_plan(EXPENSIVE, NAMES)
    for strategy in STRATEGIES:
        policy = MigrationPolicy(strategy, background=False)
        assert best_migration(layout, plan, Statistics(), QUERY, policy).strategy == strategy


def test_without_a_window_only_migrations_that_end_are_candidates():
    endless = query_of(NAMES, clique(NAMES), window=None)
    join = InlineJoin(endless, GOOD, settings=Settings(1, 1))
    for epoch in EPOCHS[:4]:
        join.run_epoch(epoch)
    estimator = Estimator(endless, join.manifest.statistics)
    layout = join.coordinator.layout(join.manifest)
    candidates = allowed_migrations(layout, parse_plan(EXPENSIVE, NAMES), estimator, MigrationPolicy())
    assert [(m.strategy, m.background) for m in candidates] == [("hybrid", True), ("moving_state", False)]


def two_keys(names: str) -> list[str]:
    """A chain of two keys in turn, so that parts of plans have one, both or none of them in common."""
    return [f"{a}.k{i % 2} = {b}.k{i % 2}" for i, (a, b) in enumerate(pairwise(names))]


@cache
def eight_streams() -> Estimator:
    names = "abcdefgh"
    query = query_of(names, two_keys(names), window=20, cross=True)
    epochs = epochs_of(dict.fromkeys(names, 2.0), dict.fromkeys(names, uniform(40)), 2)
    return Estimator(query, statistics_of(query, epochs))


@pytest.mark.parametrize("seed", range(24))
def test_what_a_migration_costs_does_not_depend_on_the_number_of_the_one_before(seed: int):
    estimator = eight_streams()
    query = estimator.query
    rng = random.Random(seed)
    first = second = draw_plan(rng, query.names)
    for request in draw_requests(rng, rng, query, first, 3).values():
        costs = []
        for number in (1, 7):
            before = match_states(build_layout(query, first), build_layout(query, second), number)
            costs.append(migration_costs(before.plans.new, request.plan, estimator))
        kinds = [[(cost.strategy, cost.background, cost.isolated) for cost in of_one] for of_one in costs]
        assert kinds[0] == kinds[1]
        figures = [[x for c in of_one for x in (c.work, c.seconds, c.peak_slowdown)] for of_one in costs]
        assert figures[0] == pytest.approx(figures[1])
        first, second = second, request.plan
