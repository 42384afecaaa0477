"""The course of a migration: how it begins, what each epoch does, and when it ends."""

from __future__ import annotations

import pyarrow as pa
import pytest

from midstream.plan.state_id import StateId
from midstream.state.migration import HandoverEntry
from midstream.testing import assert_same_rows
from tests.migration.migration_cases import STRATEGY_CASES, StrategyCase
from tests.migration.recorded_run import (
    BEGIN,
    ENDLESS,
    HYBRID,
    LEFT_DEEP,
    PARALLEL_TRACK,
    SHARING,
    TURNED,
    Run,
    a_migration,
    entries_of,
    stayed,
)


def test_moving_state_is_over_in_the_epoch_that_it_begins_in():
    run = a_migration(StrategyCase("moving_state"))
    assert run.running == []
    assert run.ends == {BEGIN: TURNED}
    assert [m.plan for m in run.manifests] == [LEFT_DEEP] * BEGIN + [TURNED] * (12 - BEGIN)
    for number, (mine, theirs) in enumerate(zip(run.tables, stayed().tables, strict=True)):
        assert_same_rows(mine, theirs, f"epoch {number}")
    assert all("old" not in work for work in run.work)


def test_hybrid_without_background_ends_after_one_window():
    run = a_migration(SHARING)
    # The last rows from before it are of time 20. Rows of 50 can meet them, and nothing from 60 on can;
    # that nothing else comes is known once 60 is there, in the epoch after.
    assert run.ends == {7: TURNED}
    assert run.running == [3, 4, 5, 6]
    assert [entries_of(m.migration) for m in run.manifests[3:7]] == [
        [HandoverEntry(StateId("c,d@1"), {"c": BEGIN, "d": BEGIN})]
    ] * 4


def test_parallel_track_ends_after_one_window_too_and_then_releases_what_it_held():
    run = a_migration(PARALLEL_TRACK)
    assert run.ends == {7: TURNED}
    held = [sum(s.rows for s in m.slices if s.owner.kind == "deferred") for m in run.manifests]
    assert held[:BEGIN] == [0, 0, 0]
    assert 0 < held[3] < held[4] < held[5] < held[6]
    assert held[7:] == [0] * 5
    theirs = [table.num_rows for table in stayed().tables]
    assert run.tables[7].num_rows == theirs[7] + held[6]
    assert_same_rows(pa.concat_tables(run.tables), pa.concat_tables(stayed().tables))


def test_hybrid_with_background_completes_one_state_after_the_other():
    run = a_migration(HYBRID)
    assert [entries_of(m.migration) for m in run.manifests[3:6]] == [
        [HandoverEntry(StateId("c,d@1"), {"c": 3, "d": 3})],
        [HandoverEntry(StateId("a,c,d@1"), {"a": 5, "c": 3, "d": 3})],
        [],
    ]
    assert run.ends == {6: TURNED}


def test_hybrid_with_background_ends_without_a_window():
    run = a_migration(HYBRID, query=ENDLESS)
    assert run.ends == {6: TURNED}
    assert_same_rows(pa.concat_tables(run.tables), pa.concat_tables(stayed(query=ENDLESS).tables))


@pytest.mark.parametrize(("background_epochs", "epochs"), [(None, 1), (4, 1), (2, 2), (1, 3)])
def test_fewer_background_epochs_at_a_time_take_more_epochs_for_a_state(background_epochs, epochs):
    run = a_migration(HYBRID, query=ENDLESS, background_epochs=background_epochs)
    scopes = [{entry.state for entry in entries_of(m.migration)} for m in run.manifests]
    lacks = [epoch for epoch, scope in enumerate(scopes) if "c,d@1" in scope]
    # There are rows of three epochs to go through. The epoch that it begins in does nothing yet.
    assert lacks == list(range(BEGIN, BEGIN + epochs))
    assert_same_rows(pa.concat_tables(run.tables), pa.concat_tables(stayed(query=ENDLESS).tables))


def test_without_any_pace_the_migration_waits():
    run = a_migration(HYBRID, query=ENDLESS, background_epochs=0)
    assert run.running == list(range(BEGIN, 12))
    assert entries_of(run.manifests[-1].migration) == [HandoverEntry(StateId("c,d@1"), {"c": 3, "d": 3})]


@pytest.mark.parametrize("how", STRATEGY_CASES, ids=str)
def test_a_migration_goes_on_after_every_restart(how: StrategyCase):
    run = Run().go(BEGIN)
    run.migrate(TURNED, how)
    for _ in range(9):
        run.reopen()
        run.go(1, background_epochs=1)
    whole = a_migration(how, background_epochs=1)
    assert [m.migration for m in run.manifests] == [m.migration for m in whole.manifests]
    assert run.ends == whole.ends
    for mine, theirs in zip(run.tables, whole.tables, strict=True):
        assert_same_rows(mine, theirs)
