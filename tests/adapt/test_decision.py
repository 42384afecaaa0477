"""Decisions: a plan is changed when that pays, not otherwise, and always for reasons that can be read."""

from __future__ import annotations

from itertools import product

import pyarrow as pa
import pytest

from midstream.adapt.decision import DecisionContext, decide
from midstream.adapt.policy import GOALS, Goal, MigrationPolicy
from midstream.migration.strategies import STRATEGY_CHOICES
from midstream.plan.build_layout import build_layout
from midstream.plan.default_plan import default_plan
from midstream.plan.tree import parse_plan
from midstream.protocol.events import PlanDecision
from midstream.protocol.settings import Settings
from midstream.state.adaptation import Adaptation
from midstream.state.statistics import Statistics
from midstream.testing import assert_same_rows
from tests.adapt.adaptive_run import Run
from tests.adapt.synthetic_streams import Draw, Epoch, clique, epochs_of, evenly, observe, query_of, uniform

# In the first phase a hardly matches b, in the other one c does.
FIRST: dict[str, Draw] = {"a": evenly(400), "b": evenly(20), "c": evenly(20)}
OTHER: dict[str, Draw] = {"a": evenly(20), "b": evenly(20), "c": evenly(400)}
BEST, BEST_OF_OTHER = "(a b) c", "(b c) a"


def phases(*lengths: int, start: int = 0, rate: float = 16) -> list[Epoch]:
    """Epochs of two seconds each, a quarter of the window, of one phase and the other in turn."""
    found: list[Epoch] = []
    rates = dict.fromkeys("abc", rate)
    for number, length in enumerate(lengths):
        draws = OTHER if number % 2 else FIRST
        found += epochs_of(rates, draws, length, 2.0, start=start + len(found), exact=True)
    return found


def test_streams_that_stay_as_they_are_cause_one_migration_at_most():
    draws: dict[str, Draw] = {"a": uniform(100), "b": uniform(10), "c": uniform(10)}
    run = Run(BEST_OF_OTHER).go(epochs_of(dict.fromkeys("abc", 6.0), draws, 300, 2.0))
    assert run.last.migrations == 1
    assert run.last.plan != BEST_OF_OTHER


@pytest.mark.parametrize(("names", "rate", "domain"), [("abc", 16.0, 20), ("abcd", 3.0, 10)])
def test_plans_that_are_about_as_good_are_not_tried_in_turn(names, rate, domain):
    query = query_of(names, clique(names), window=8)
    known, statistics, plan, begun = Adaptation(), Statistics(), default_plan(query), []
    epochs = epochs_of(dict.fromkeys(names, rate), dict.fromkeys(names, uniform(domain)), 200, 2.0)
    for number, epoch in enumerate(epochs):
        statistics = observe(query, [epoch], 2.0, before=statistics)
        known = decide(
            DecisionContext(query, build_layout(query, plan), statistics, 1, number), known, MigrationPolicy()
        )
        wanted = known.decision_for(number + 1)
        if wanted is not None:
            begun.append(wanted.best_plan)
            plan = parse_plan(wanted.best_plan, query.names)
    assert len(begun) <= 1, begun


def test_a_drift_leads_to_a_cheaper_plan_and_the_same_results():
    epochs = phases(12, 24)
    adapting, fixed = Run(BEST).go(epochs), Run(BEST, Settings(1, 1)).go(epochs)
    assert (adapting.last.migrations, fixed.last.migrations) == (1, 0)
    decision = next(
        m.adaptation.last_decision for m in adapting.manifests if m.migration or m.ended_migration
    )
    assert decision is not None
    assert 12 <= decision.epoch < 24
    assert decision.best_cost < 0.85 * decision.cost
    assert_same_rows(pa.concat_tables(adapting.tables), pa.concat_tables(fixed.tables))
    assert adapting.work < 0.9 * fixed.work


@pytest.mark.parametrize("period", [1, 3])
def test_streams_that_change_faster_than_plans_can_follow_cost_little_more_than_the_best_plan(period):
    epochs = phases(*[period] * (24 // period))
    adapting = Run(BEST, background_epochs=1).go(epochs)
    fixed = [Run(plan, Settings(1, 1)).go(epochs).work for plan in (BEST, BEST_OF_OTHER, "a b c")]
    assert adapting.work <= 1.1 * min(fixed)


def test_a_decision_is_told_and_explained():
    run = Run(BEST_OF_OTHER).go(phases(1))
    assert "Nothing is known yet" in run.says()
    run.go(phases(10, start=1))
    moved = next(e for e in run.events if isinstance(e, PlanDecision) and e.verdict == "migrate")
    assert moved.plan == BEST_OF_OTHER
    assert moved.message.startswith("decided to migrate: ")
    decision = run.last.adaptation.last_decision
    assert decision is not None
    text = run.says()
    for plan, cost in {
        decision.plan: decision.cost,
        decision.best_plan: decision.best_cost,
        **decision.compared,
    }.items():
        assert plan in text
        assert f"{cost:,.0f} units/s" in text
    assert decision.reason[1:] in text


def test_without_adapting_nothing_is_decided_but_all_is_known():
    run = Run(BEST_OF_OTHER, Settings(1, 1)).go(phases(8))
    assert run.last.adaptation == Adaptation()
    assert not [event for event in run.events if isinstance(event, PlanDecision)]
    assert "(off)" in run.says()
    assert "a and b:" in run.says()


def test_without_a_window_plans_are_changed_too():
    query = query_of("abc", clique("abc"), None)
    epochs = phases(20, rate=4)
    adapting = Run(BEST_OF_OTHER, query=query).go(epochs)
    fixed = Run(BEST_OF_OTHER, Settings(1, 1), query).go(epochs)
    assert adapting.last.migrations == 1
    assert adapting.last.migration is None
    assert_same_rows(pa.concat_tables(adapting.tables), pa.concat_tables(fixed.tables))


def test_what_a_user_asked_for_stands_until_something_changes():
    run = Run(BEST).go(phases(10))
    assert run.last.migrations == 0
    run.join.migrate(BEST_OF_OTHER, "moving_state")
    run.go(phases(16, start=10))
    assert (run.last.migrations, run.last.plan) == (1, BEST_OF_OTHER)
    assert "The plan was asked for" in run.says()
    # What changes is for the better of the plan that runs, and then for the worse.
    run.go(phases(0, 8, 14, start=26))
    assert run.last.migrations > 1
    assert "asked for" not in run.says()


def test_what_a_user_asked_for_stands_though_it_is_what_was_decided_before():
    run = Run(BEST_OF_OTHER).go(phases(8))
    decided = run.last.plan
    assert decided != BEST_OF_OTHER
    for number, plan in enumerate((BEST_OF_OTHER, decided)):
        run.join.migrate(plan, "moving_state")
        run.go(phases(1, start=8 + number))
        assert (run.last.plan, run.last.adaptation.requested_plan) == (plan, plan)


@pytest.mark.parametrize(
    ("strategy", "goal"), [*product(("auto", "parallel_track"), GOALS), ("hybrid", "steady")]
)
def test_any_strategy_and_goal_can_be_asked_for(strategy: str, goal: Goal):
    settings = Settings(1, 1, adapt=True, policy=MigrationPolicy(strategy, goal=goal))
    run = Run(BEST_OF_OTHER, settings).go(phases(6))
    (begun, *_) = (m.migration or m.ended_migration for m in run.manifests if m.migrations)
    assert begun is not None
    assert strategy in ("auto", begun.strategy)


@pytest.mark.parametrize("strategy", STRATEGY_CHOICES)
def test_nor_does_the_lack_of_a_window_and_of_background_work_stop_a_query(strategy: str):
    settings = Settings(1, 1, adapt=True, policy=MigrationPolicy(strategy, background=False))
    run = Run(BEST_OF_OTHER, settings, query_of("abc", clique("abc"), None)).go(phases(6, rate=4))
    assert run.last.epoch == 5


def test_decisions_after_any_restart_are_those_of_a_run_without():
    epochs = phases(8, 14)
    whole, broken = Run(BEST_OF_OTHER).go(epochs), Run(BEST_OF_OTHER)
    for first in range(0, len(epochs), 2):
        broken.reopen()
        broken.go(epochs[first : first + 2])
    assert whole.last.migrations >= 1
    for mine, theirs in zip(broken.manifests, whole.manifests, strict=True):
        assert mine.adaptation == theirs.adaptation
        assert mine.statistics == theirs.statistics
        assert (mine.plan, mine.migration) == (theirs.plan, theirs.migration)
