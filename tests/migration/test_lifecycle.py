"""The lifecycle of a migration: how it begins, what each epoch does, and when it ends."""

from __future__ import annotations

import pytest

from midstream.plan.state_id import StateId
from midstream.state.migration import HandoverEntry
from midstream.testing import assert_same_rows
from tests.migration.migration_cases import STRATEGY_CASES, StrategyCase
from tests.migration.migration_run import (
    HYBRID,
    LEFT_DEEP,
    PARALLEL_TRACK,
    REORDERED,
    SHARING,
    START,
    WITHOUT_WINDOW,
    MigrationRun,
    entries_of,
    run_migration,
    run_unchanged,
)


def test_moving_state_is_over_in_the_epoch_that_it_begins_in():
    run = run_migration(StrategyCase("moving_state"))
    assert run.running == []
    assert run.ends == {START: REORDERED}
    assert [m.plan for m in run.manifests] == [LEFT_DEEP] * START + [REORDERED] * (12 - START)
    for number, (actual, expected) in enumerate(zip(run.results, run_unchanged().results, strict=True)):
        assert_same_rows(actual, expected, f"epoch {number}")
    assert all("old" not in work for work in run.work)


def test_hybrid_without_background_ends_after_one_window():
    run = run_migration(SHARING)
    # The last rows from before it have time 20. Rows with time 50 can meet them, later ones cannot. The
    # watermark passes 50 with the rows of time 60, and applies in the epoch after them.
    assert run.ends == {7: REORDERED}
    assert run.running == [3, 4, 5, 6]
    assert [entries_of(m.migration) for m in run.manifests[3:7]] == [
        [HandoverEntry(StateId("c,d@1"), {"c": START, "d": START})]
    ] * 4


def test_parallel_track_ends_after_one_window_too_and_then_releases_deferred_results():
    run = run_migration(PARALLEL_TRACK)
    assert run.ends == {7: REORDERED}
    deferred = [sum(s.rows for s in m.slices if s.owner.kind == "deferred") for m in run.manifests]
    assert deferred[:START] == [0, 0, 0]
    assert 0 < deferred[3] < deferred[4] < deferred[5] < deferred[6]
    assert deferred[7:] == [0] * 5
    expected = [table.num_rows for table in run_unchanged().results]
    assert run.results[7].num_rows == expected[7] + deferred[6]
    assert_same_rows(run.all_results, run_unchanged().all_results)


def test_hybrid_with_background_completes_one_state_after_the_other():
    run = run_migration(HYBRID)
    assert [entries_of(m.migration) for m in run.manifests[3:6]] == [
        [HandoverEntry(StateId("c,d@1"), {"c": 3, "d": 3})],
        [HandoverEntry(StateId("a,c,d@1"), {"a": 5, "c": 3, "d": 3})],
        [],
    ]
    assert run.ends == {6: REORDERED}


def test_hybrid_with_background_ends_without_a_window():
    run = run_migration(HYBRID, query=WITHOUT_WINDOW)
    assert run.ends == {6: REORDERED}
    assert_same_rows(run.all_results, run_unchanged(query=WITHOUT_WINDOW).all_results)


@pytest.mark.parametrize(("background_epochs", "epochs"), [(None, 1), (4, 1), (2, 2), (1, 3)])
def test_a_slower_pace_takes_more_epochs_for_a_state(background_epochs, epochs):
    run = run_migration(HYBRID, query=WITHOUT_WINDOW, background_epochs=background_epochs)
    lacking = [{entry.state for entry in entries_of(m.migration)} for m in run.manifests]
    epochs_lacking = [epoch for epoch, states in enumerate(lacking) if "c,d@1" in states]
    # There are rows of three epochs to rebuild. The first epoch of the migration rebuilds nothing yet.
    assert epochs_lacking == list(range(START, START + epochs))
    assert_same_rows(run.all_results, run_unchanged(query=WITHOUT_WINDOW).all_results)


def test_with_a_pace_of_zero_nothing_is_rebuilt():
    run = run_migration(HYBRID, query=WITHOUT_WINDOW, background_epochs=0)
    assert run.running == list(range(START, 12))
    assert entries_of(run.manifests[-1].migration) == [HandoverEntry(StateId("c,d@1"), {"c": 3, "d": 3})]


@pytest.mark.parametrize("how", STRATEGY_CASES, ids=str)
def test_a_migration_continues_after_every_restart(how: StrategyCase):
    run = MigrationRun().go(START)
    run.migrate(REORDERED, how)
    for _ in range(9):
        run.restart()
        run.go(1, background_epochs=1)
    uninterrupted = run_migration(how, background_epochs=1)
    assert [m.migration for m in run.manifests] == [m.migration for m in uninterrupted.manifests]
    assert run.ends == uninterrupted.ends
    for actual, expected in zip(run.results, uninterrupted.results, strict=True):
        assert_same_rows(actual, expected)
