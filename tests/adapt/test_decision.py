"""Decisions: the plan is changed if and only if that pays, and the reasons can be read."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from midstream.adapt.decision import DecisionContext, decide, standard_errors
from midstream.adapt.policy import GOALS, Goal, MigrationPolicy
from midstream.migration.strategies import STRATEGY_CHOICES
from midstream.plan.build_layout import build_layout
from midstream.plan.default_plan import default_plan
from midstream.plan.tree import parse_plan
from midstream.protocol.events import PlanDecision
from midstream.protocol.settings import Settings
from midstream.state.adaptation import Adaptation, Verdict
from midstream.state.statistics import Statistics
from midstream.testing import assert_same_rows
from tests.adapt.adaptive_run import FIXED, adaptive_run, explanation
from tests.adapt.synthetic_streams import (
    DrawKeys,
    Epoch,
    clique,
    epochs_of,
    evenly_spread,
    query_of,
    statistics_of,
    uniform,
)

# In the first phase a has few matches, in the other one c.
FIRST: dict[str, DrawKeys] = {"a": evenly_spread(400), "b": evenly_spread(20), "c": evenly_spread(20)}
OTHER: dict[str, DrawKeys] = {"a": evenly_spread(20), "b": evenly_spread(20), "c": evenly_spread(400)}
BEST_FIRST, BEST_OTHER = "(a b) c", "(b c) a"


def phases(*lengths: int, start: int = 0, rate: float = 16) -> list[Epoch]:
    """Epochs of two seconds, a quarter of the window, of the two phases in turn, so many of each."""
    epochs: list[Epoch] = []
    rates = dict.fromkeys("abc", rate)
    for number, length in enumerate(lengths):
        draws = OTHER if number % 2 else FIRST
        epochs += epochs_of(rates, draws, length, 2.0, start=start + len(epochs), exact=True)
    return epochs


def test_streams_that_do_not_change_cause_one_migration_at_most():
    draws: dict[str, DrawKeys] = {"a": uniform(100), "b": uniform(10), "c": uniform(10)}
    run = adaptive_run(BEST_OTHER).process(epochs_of(dict.fromkeys("abc", 6.0), draws, 300, 2.0))
    assert run.last.migrations == 1
    assert run.last.plan != BEST_OTHER


# The last is a run in which point estimates would change the plan twice; `make bench ARGS=stability` has 50.
@pytest.mark.parametrize(
    ("names", "rate", "domain", "seed"), [("abc", 16.0, 20, 0), ("abcd", 3.0, 10, 0), ("abcde", 4.0, 20, 1)]
)
def test_plans_of_about_the_same_cost_do_not_alternate(names, rate, domain, seed):
    query = query_of(names, clique(names), window=8)
    adaptation, statistics, plan = Adaptation(), Statistics(), default_plan(query)
    migrations, reasons = [], set()
    epochs = epochs_of(dict.fromkeys(names, rate), dict.fromkeys(names, uniform(domain)), 200, 2.0, seed=seed)
    for number, epoch in enumerate(epochs):
        statistics = statistics_of(query, [epoch], 2.0, before=statistics)
        context = DecisionContext(
            query=query,
            layout=build_layout(query, plan),
            statistics=statistics,
            partitions=1,
            epoch=number,
        )
        adaptation = decide(context, adaptation, MigrationPolicy())
        if adaptation.last_decision is not None:
            reasons.add(adaptation.last_decision.reason.partition(",")[0])
        decision = Verdict(number, adaptation).migration
        if decision is not None:
            migrations.append(decision.best_plan)
            plan = parse_plan(decision.best_plan, query.names)
    assert len(migrations) <= 1, migrations
    assert "the best plan saves 0%" not in reasons, "that says nothing"


@pytest.mark.parametrize("names", ["abc", "abcde", "abcdefgh"])
def test_all_comparisons_of_an_epoch_are_as_sure_as_is_said(names):
    query = query_of(names, clique(names), window=8)
    # The error of the worst comparison is as long as a vector of so many independent errors.
    errors = np.random.default_rng(0).chisquare(len(names), 2_000_000)
    assert 1e-3 < np.mean(errors > standard_errors(query) ** 2) < 4e-3
    assert 2e-5 < np.mean(errors > standard_errors(query, again=True) ** 2) < 2e-4


def test_a_change_of_the_streams_leads_to_a_cheaper_plan_and_the_same_results():
    epochs = phases(12, 24)
    adapting, fixed = (
        adaptive_run(BEST_FIRST).process(epochs),
        adaptive_run(BEST_FIRST, FIXED).process(epochs),
    )
    assert (adapting.last.migrations, fixed.last.migrations) == (1, 0)
    decision = next(
        m.adaptation.last_decision for m in adapting.manifests if m.migration or m.ended_migration
    )
    assert decision is not None
    assert 12 <= decision.epoch < 24
    assert decision.best_cost < 0.85 * decision.cost
    assert_same_rows(adapting.all_results, fixed.all_results)
    assert adapting.work_units < 0.9 * fixed.work_units


@pytest.mark.parametrize("period", [1, 3])
def test_streams_that_change_too_fast_to_follow_cost_little_more_than_the_best_fixed_plan(period):
    epochs = phases(*[period] * (24 // period))
    adapting = adaptive_run(BEST_FIRST).process(epochs, background_epochs=1)
    fixed = [
        adaptive_run(plan, FIXED).process(epochs).work_units for plan in (BEST_FIRST, BEST_OTHER, "a b c")
    ]
    assert adapting.work_units <= 1.1 * min(fixed)


def test_a_decision_has_an_event_and_an_explanation():
    run = adaptive_run(BEST_OTHER).process(phases(1))
    assert "Nothing is known yet: statistics begin with the second epoch that has rows." in explanation(run)
    run.process(phases(10, start=1))
    event = next(e for e in run.events if isinstance(e, PlanDecision) and e.verdict == "migrate")
    assert event.plan == BEST_OTHER
    assert event.message.startswith("decided to migrate: ")
    decision = run.last.adaptation.last_decision
    assert decision is not None
    text = explanation(run)
    for plan, cost in {
        decision.plan: decision.cost,
        decision.best_plan: decision.best_cost,
        **decision.compared,
    }.items():
        assert plan in text
        assert f"{cost:,.0f} units/s" in text
    assert decision.reason[1:] in text


def test_streams_of_which_nothing_is_known_are_named():
    epochs = [{**epoch, "b": epoch["b"].slice(0, 0), "c": epoch["c"].slice(0, 0)} for epoch in phases(3)]
    run = adaptive_run(BEST_OTHER).process(epochs)
    assert "Nothing is known of b, c: no rows have come, or none lately." in explanation(run)


def test_without_adapting_there_are_statistics_but_no_decisions():
    run = adaptive_run(BEST_OTHER, FIXED).process(phases(8))
    assert run.last.adaptation == Adaptation()
    assert not [event for event in run.events if isinstance(event, PlanDecision)]
    assert "(off)" in explanation(run)
    assert "a and b:" in explanation(run)


def test_plans_are_changed_without_a_window():
    query = query_of("abc", clique("abc"), None)
    epochs = phases(20, rate=4)
    adapting = adaptive_run(BEST_OTHER, query=query).process(epochs)
    fixed = adaptive_run(BEST_OTHER, FIXED, query).process(epochs)
    assert adapting.last.migrations == 1
    assert adapting.last.migration is None
    assert_same_rows(adapting.all_results, fixed.all_results)


def test_a_requested_plan_stands_until_the_streams_change():
    run = adaptive_run(BEST_FIRST).process(phases(10))
    assert run.last.migrations == 0
    run.join.migrate(BEST_OTHER, "moving_state")
    run.process(phases(16, start=10))
    assert (run.last.migrations, run.last.plan) == (1, BEST_OTHER)
    assert "The plan was asked for" in explanation(run)
    # At first the change makes the running plan the better one, and then the worse one.
    run.process(phases(0, 8, 14, start=26))
    assert run.last.migrations > 1
    assert "asked for" not in explanation(run)


def test_a_requested_plan_stands_even_if_it_is_the_plan_that_was_decided_on():
    run = adaptive_run(BEST_OTHER).process(phases(8))
    decided = run.last.plan
    assert decided != BEST_OTHER
    for number, plan in enumerate((BEST_OTHER, decided)):
        run.join.migrate(plan, "moving_state")
        run.process(phases(1, start=8 + number))
        assert (run.last.plan, run.last.adaptation.requested_plan) == (plan, plan)


@pytest.mark.parametrize(
    ("strategy", "goal"), [*product(("auto", "parallel_track"), GOALS), ("hybrid", "steady")]
)
def test_the_strategy_of_the_policy_is_used_for_any_goal(strategy: str, goal: Goal):
    settings = Settings(1, 1, adapt=True, policy=MigrationPolicy(strategy, goal=goal))
    run = adaptive_run(BEST_OTHER, settings).process(phases(6))
    migration = next(m.migration or m.ended_migration for m in run.manifests if m.migrations)
    assert migration is not None
    assert strategy in ("auto", migration.strategy)


@pytest.mark.parametrize("strategy", STRATEGY_CHOICES)
def test_a_query_without_a_window_and_without_background_work_keeps_running(strategy: str):
    settings = Settings(1, 1, adapt=True, policy=MigrationPolicy(strategy, background=False))
    run = adaptive_run(BEST_OTHER, settings, query_of("abc", clique("abc"), None)).process(phases(6, rate=4))
    assert run.last.epoch == 5


def test_decisions_are_the_same_with_restarts_as_without():
    epochs = phases(8, 14)
    undisturbed, restarted = adaptive_run(BEST_OTHER).process(epochs), adaptive_run(BEST_OTHER)
    for first in range(0, len(epochs), 2):
        restarted.restart()
        restarted.process(epochs[first : first + 2])
    assert undisturbed.last.migrations >= 1
    for manifest, expected in zip(restarted.manifests, undisturbed.manifests, strict=True):
        assert manifest.adaptation == expected.adaptation
        assert manifest.statistics == expected.statistics
        assert (manifest.plan, manifest.migration) == (expected.plan, expected.migration)
