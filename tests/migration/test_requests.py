"""Requests for another plan: which are refused, which wait, and that they survive restarts."""

from __future__ import annotations

import inspect

import pytest

from midstream.adapt.policy import MigrationPolicy
from midstream.errors import OptionError, PlanError
from midstream.inline import InlineJoin
from midstream.migration.request import make_request
from midstream.protocol.events import MigrationStarted
from midstream.protocol.settings import Settings
from midstream.spark.query import JoinStreamingQuery
from midstream.testing import assert_same_rows
from tests.helpers import small_query
from tests.migration.migration_cases import StrategyCase
from tests.migration.migration_run import (
    HYBRID,
    ISOLATED,
    LEFT_DEEP,
    ON,
    PARALLEL_TRACK,
    QUERY,
    REORDERED,
    SHARING,
    START,
    MigrationRun,
    arrivals,
    run_unchanged,
)


def test_a_request_for_the_running_plan_changes_nothing():
    run = MigrationRun().go(2)
    run.migrate(LEFT_DEEP)
    run.go(2)
    assert run.join.manifest.migrations == 0
    assert run.event_types() == []
    assert run.running == []
    assert run.store.list("requests") == []
    assert [m.slices for m in run.manifests] == [m.slices for m in run_unchanged(4).manifests]


def test_requests_wait_for_the_migration_in_progress_and_the_last_one_is_applied():
    run = MigrationRun().go(START)
    run.migrate(REORDERED, SHARING)
    run.go(1)
    run.migrate("a b c d", StrategyCase("moving_state"))
    run.go(1)
    run.migrate("(a d) (b c)", HYBRID)
    run.go(9)
    assert run.ends == {7: REORDERED, 11: "(a d) (b c)"}
    started = [(e.migration, e.old_plan, e.new_plan) for e in run.events if isinstance(e, MigrationStarted)]
    assert started == [(1, LEFT_DEEP, REORDERED), (2, REORDERED, "(a d) (b c)")]
    assert run.manifests[8].migration is not None
    assert run.manifests[8].migration.start_epoch == 8
    assert run.store.list("requests") == []
    assert_same_rows(run.all_results, run_unchanged(14).all_results)


def test_a_request_back_to_the_old_plan_waits_as_well():
    run = MigrationRun().go(START)
    run.migrate(REORDERED, SHARING)
    run.go(1)
    run.migrate(LEFT_DEEP, StrategyCase("moving_state"))
    run.go(8)
    assert run.ends == {7: REORDERED, 8: LEFT_DEEP}


def test_a_request_survives_a_restart():
    run = MigrationRun().go(START)
    run.migrate(REORDERED, SHARING)
    run.restart()
    run.go(1)
    assert run.running == [START]
    run.migrate("a b c d", StrategyCase("moving_state"))
    run.restart()
    run.go(8)
    assert run.ends == {7: REORDERED, 8: "a b c d"}
    run.restart()
    run.go(1)
    assert run.join.manifest.migrations == 2
    assert run.join.manifest.plan == "a b c d"


@pytest.mark.parametrize("plan", ["((a b) c) e", "(a b) c", "a a b c d", "((a b) c d", ""])
def test_a_request_must_be_for_a_plan_of_these_streams(plan):
    run = MigrationRun().go(1)
    with pytest.raises(PlanError):
        run.migrate(plan)
    assert run.store.list("requests") == []


@pytest.mark.parametrize("strategy", ["hybrid", "moving_state", "parallel_track", "auto"])
def test_plans_can_be_isolated_only_by_hybrid_without_background_work(strategy: str):
    with pytest.raises(OptionError, match="only by hybrid without background work"):
        make_request(QUERY, REORDERED, strategy, background=True, isolated=True)


def test_hybrid_without_background_work_is_possible_with_a_window_of_zero():
    query = small_query(ON, "abcd", default_window=0, select=["a.v as a"])
    run = MigrationRun(query).go(2)
    run.join.migrate(REORDERED, "hybrid", background="off")
    run.go(1)
    migration = run.manifests[-1].migration or run.manifests[-1].ended_migration
    assert migration is not None
    assert migration.strategy == "hybrid"


def test_a_request_must_name_an_existing_strategy():
    run = MigrationRun().go(1)
    with pytest.raises(OptionError, match=r"hybrid, moving_state, parallel_track; got 'slowly'"):
        run.join.migrate(REORDERED, "slowly")
    assert run.store.list("requests") == []


def test_the_policy_supplies_what_a_request_leaves_out():
    policy = MigrationPolicy("parallel_track", background=False)
    left_out = policy.request(QUERY, REORDERED, None, background=None)
    assert left_out == make_request(QUERY, REORDERED, "parallel_track", background=False)
    explicit = policy.request(QUERY, REORDERED, "hybrid", background="auto")
    assert explicit == make_request(QUERY, REORDERED, "hybrid", background=True)
    without_background = MigrationPolicy("hybrid").request(QUERY, REORDERED, None, background="off")
    assert without_background == make_request(QUERY, REORDERED, "hybrid", background=False)


def test_a_migration_follows_the_policy_of_the_settings():
    settings = Settings(1, 1, policy=MigrationPolicy("moving_state"))
    join = InlineJoin(QUERY, LEFT_DEEP, settings=settings)
    join.run_epoch(arrivals(0))
    join.migrate(REORDERED)
    join.run_epoch(arrivals(1))
    assert join.manifest.ended_migration is not None
    assert join.manifest.ended_migration.strategy == "moving_state"


def test_background_work_is_auto_or_off():
    run = MigrationRun().go(1)
    with pytest.raises(OptionError, match=r"background must be one of auto, off; got True"):
        run.join.migrate(REORDERED, background=True)  # type: ignore[arg-type]  # this is what the test is about
    assert run.store.list("requests") == []


def test_both_shells_have_the_same_parameters():
    inline, spark = (
        inspect.signature(shell.migrate).parameters for shell in (InlineJoin, JoinStreamingQuery)
    )
    assert {name: inline[name] for name in spark} == dict(spark)
    assert set(inline) - set(spark) == {"isolated"}


@pytest.mark.parametrize("how", [SHARING, ISOLATED, PARALLEL_TRACK], ids=str)
def test_a_strategy_that_waits_for_expiry_needs_a_window_between_any_two_streams(how: StrategyCase):
    run = MigrationRun(small_query(ON, "abcd", pairs={("a", "b"): 30, ("b", "c"): 30}))
    with pytest.raises(OptionError, match="no window between a and d") as caught:
        run.migrate(REORDERED, how)
    assert "moving_state" in str(caught.value)
    assert run.store.list("requests") == []
    run.migrate(REORDERED, HYBRID)
    run.migrate(REORDERED, StrategyCase("moving_state"))
