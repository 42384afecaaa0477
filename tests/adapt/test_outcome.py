"""What migrations turned out to be: reported for each, and taken back once if worse than what was left."""

from __future__ import annotations

import pytest

from midstream.adapt import decision
from midstream.adapt.explain import describe_outcome
from midstream.adapt.optimizer import CostedPlan
from midstream.plan.tree import parse_plan
from midstream.protocol.events import MigrationJudged, MigrationTakenBack, PlanDecision
from midstream.state.adaptation import MigrationOutcome
from midstream.testing import assert_same_rows
from tests.adapt.adaptive_run import FIXED, adaptive_run, explanation
from tests.adapt.synthetic_streams import (
    DrawKeys,
    Epoch,
    epochs_of,
    evenly_spread,
)
from tests.recorded_run import RecordedRun

FIRST: dict[str, DrawKeys] = {"a": evenly_spread(400), "b": evenly_spread(20), "c": evenly_spread(20)}
BEST, WORST = "(a b) c", "(b c) a"
RATES = dict.fromkeys("abc", 16.0)


def epochs(count: int, start: int = 0) -> list[Epoch]:
    """Epochs of two seconds, a quarter of the window; a has few matches."""
    return epochs_of(RATES, FIRST, count, 2.0, start=start, exact=True)


def judged(run: RecordedRun) -> list[MigrationOutcome]:
    outcomes = [m.adaptation.last_outcome for m in run.manifests]
    return [o for i, o in enumerate(outcomes) if o is not None and (i == 0 or o != outcomes[i - 1])]


@pytest.mark.parametrize("strategy", ["hybrid", "moving_state", "parallel_track"])
def test_the_outcome_of_each_migration_is_near_what_was_estimated(strategy):
    run = adaptive_run(WORST, FIXED).process(epochs(16))
    run.join.migrate(BEST, strategy, background="off")
    run.process(epochs(16, start=16))
    (outcome,) = judged(run)
    assert (outcome.migration, outcome.old_plan, outcome.new_plan) == (1, WORST, BEST)
    assert outcome.is_final
    assert not outcome.is_worse
    assert outcome.predicted_gain is not None
    assert outcome.predicted_cost is not None
    assert outcome.gain == pytest.approx(outcome.predicted_gain, rel=0.35)
    # Of the work of the two plans together, the migration is a part: an estimate may be off by some of it.
    assert abs(outcome.cost - outcome.predicted_cost) < 0.35 * outcome.old_cost * 8
    (event,) = [event for event in run.events if isinstance(event, MigrationJudged)]
    assert (event.outcome, event.cost, event.gain) == ("not clearly worse", outcome.cost, outcome.gain)
    assert f"Migration 1, from {WORST} to {BEST}, turned out not clearly worse:" in explanation(run)


def test_what_a_plan_takes_more_is_not_said_to_be_saved():
    outcome = MigrationOutcome(
        epoch=9,
        migration=1,
        old_plan=BEST,
        new_plan=WORST,
        is_final=True,
        predicted_cost=None,
        cost=-100.0,
        predicted_gain=3.0,
        old_cost=10.0,
        new_cost=22.0,
        is_worse=True,
    )
    assert list(describe_outcome(outcome)) == [
        f"Migration 1, from {BEST} to {WORST}, turned out worse:",
        "  it took 100 units less than the plan before it",
        "  it takes 12 units/s more, estimated 3:",
        "  22 units/s instead of 10 units/s, without what stored bytes cost",
    ]


def test_what_was_seen_of_a_plan_is_near_what_is_estimated():
    run = adaptive_run(BEST, FIXED).process(epochs(20))
    run.join.migrate(WORST, "moving_state")
    run.process(epochs(12, start=20))
    (outcome,) = judged(run)
    assert outcome.gain < 0
    assert outcome.old_cost == pytest.approx(outcome.new_cost + outcome.gain)


def test_a_migration_that_a_user_asked_for_is_not_taken_back():
    run = adaptive_run(BEST).process(epochs(16))
    run.join.migrate(WORST, "moving_state")
    run.process(epochs(24, start=16))
    (outcome,) = judged(run)
    assert outcome.is_worse
    assert outcome.is_final
    assert not any(isinstance(event, MigrationTakenBack) for event in run.events)
    assert (run.last.plan, run.last.migrations) == (WORST, 1)


def misled(monkeypatch: pytest.MonkeyPatch) -> RecordedRun:
    """A run that has just begun a migration by a wrong estimate, and estimates right again."""
    run = adaptive_run(BEST).process(epochs(14))
    assert run.last.migrations == 0
    with monkeypatch.context() as patched:
        cheap = CostedPlan(parse_plan(WORST, "abc"), 1.0)
        patched.setattr(decision, "best_plan", lambda *_: cheap)
        while not run.last.migrations:
            assert len(run.manifests) < 30
            run.process(epochs(1, start=len(run.manifests)))
    return run


def test_a_migration_that_turns_out_worse_is_taken_back_once(monkeypatch):
    run = misled(monkeypatch)
    began = len(run.manifests)
    run.process(epochs(60, start=began))
    outcomes = judged(run)
    assert [o.is_worse for o in outcomes] == [True, False]
    assert [o.is_final for o in outcomes] == [False, True]
    (taken_back,) = [event for event in run.events if isinstance(event, MigrationTakenBack)]
    assert (taken_back.migration, taken_back.plan, taken_back.best) == (1, WORST, BEST)
    (why,) = [e for e in run.events if isinstance(e, PlanDecision) and "turned out worse" in e.reason]
    assert (why.verdict, why.best) == ("migrate", BEST)
    # It does not go there again, though nothing has changed but what it knows.
    assert (run.last.plan, run.last.migrations) == (BEST, 2)
    fixed = adaptive_run(BEST, FIXED).process(epochs(began + 60))
    assert_same_rows(run.all_results, fixed.all_results)


def test_a_plan_that_was_gone_back_to_stays_until_the_streams_change(monkeypatch):
    run = misled(monkeypatch)
    run.process(epochs(25, start=len(run.manifests)))
    assert run.last.adaptation.restored_plan == BEST
    run.process(epochs(20, start=len(run.manifests)))
    assert (run.last.plan, run.last.migrations) == (BEST, 2)
    changed = {"a": evenly_spread(20), "b": evenly_spread(20), "c": evenly_spread(400)}
    run.process(epochs_of(RATES, changed, 30, 2.0, start=len(run.manifests), exact=True))
    assert run.last.plan != BEST
