"""The shares of the plans: that of the old plan only shrinks, and states store only rows of use."""

from __future__ import annotations

from itertools import pairwise

import pytest
from msgspec.structs import replace

from midstream.engine.work import WorkCounts
from midstream.migration import lifecycle
from midstream.migration.handover_tables import complete
from midstream.plan.tree import parse_plan
from midstream.protocol.settings import Settings
from midstream.testing import Shape, assert_same_rows
from midstream.testing.random_streams import SECOND
from midstream.values import Micros
from tests.migration.migration_cases import CLIQUE, MigrationCase, StrategyCase, check_migration
from tests.migration.migration_run import (
    HYBRID,
    ISOLATED,
    PARALLEL_TRACK,
    REORDERED,
    SHARING,
    START,
    MigrationRun,
    entries_of,
    run_migration,
    run_unchanged,
    slices_of,
    work_of,
)


@pytest.mark.parametrize("how", [SHARING, ISOLATED, HYBRID, PARALLEL_TRACK], ids=str)
def test_the_work_of_the_old_plan_falls_to_nothing(how: StrategyCase):
    run, unchanged = run_migration(how), run_unchanged()
    (end,) = run.ends
    old = [work.get("old", WorkCounts()).comparisons for work in run.work]
    assert all(count > 0 for count in old[START : START + 2])
    assert old[:START] == [0] * START
    assert old[end:] == [0] * (12 - end)
    alone = [sum(work.comparisons for work in sides.values()) for sides in unchanged.work]
    assert all(share <= total for share, total in zip(old, alone, strict=True))


def test_the_old_plan_drops_rows_early_that_it_need_not_produce():
    (whole,) = run_unchanged().work[START].values()
    parallel = run_migration(PARALLEL_TRACK).work[START]["old"]
    hybrid = run_migration(SHARING).work[START]["old"]
    # There are three rows of each stream, and one more of each arrives. Parallel track does all the work.
    assert parallel.comparisons == whole.comparisons
    # Hybrid drops new rows of c and d, and so all their combinations.
    new_pairs = 4**2 - 3**2
    assert hybrid.comparisons == (3 + 4) + new_pairs * 3 + new_pairs * 3 * 3


def test_with_background_work_it_falls_sooner():
    old = [
        sum(work.get("old", WorkCounts()).comparisons for work in run_migration(how).work)
        for how in (HYBRID, SHARING, PARALLEL_TRACK)
    ]
    assert old == sorted(old)
    assert len(set(old)) == 3


@pytest.mark.parametrize("new", [REORDERED, "((b c) a) d", "(a d) (b c)", "((a b) d) c", "((d b) a) c"])
@pytest.mark.parametrize("how", [SHARING, ISOLATED, HYBRID, PARALLEL_TRACK], ids=str)
@pytest.mark.parametrize("background_epochs", [1, 2, None])
def test_tables_only_shrink_unless_a_state_is_complete(
    new: str, how: StrategyCase, background_epochs: int | None
):
    run = run_migration(how, new, background_epochs=background_epochs)
    assert len(run.ends) == 1
    for before, after in pairwise(run.manifests[START:]):
        was, now = entries_of(before.migration), entries_of(after.migration)
        for entry in now:
            below = [e for e in was if set(e.state.streams) < set(entry.state.streams)]
            moved_up = how == HYBRID and any(e.bounds.items() <= entry.bounds.items() for e in below)
            assert entry in was or moved_up
            # No state may lack rows of future epochs.
            assert all(bound <= after.epoch + 1 for bound in entry.bounds.values())
        assert len(now) <= len(was)


def test_siblings_are_bounded_by_the_epoch_of_completion_not_by_the_start(monkeypatch):
    case = MigrationCase(CLIQUE, Shape(rows=3, keys=3, lateness=Micros(4 * SECOND)), 30, Settings(1, 4), 11)
    old, new = (parse_plan(text, "abcd") for text in ("b ((a c) d)", "c ((a b) d)"))
    check_migration(case, 0, old, new, HYBRID, start=3, background_epochs=None)

    def bounded_by_the_start(tables, layout, state, epoch):
        start = min(bound for entry in tables[layout.root] for bound in entry.bounds.values())
        return complete(tables, layout, state, start)

    monkeypatch.setattr(lifecycle, "complete", bounded_by_the_start)
    with pytest.raises(AssertionError, match=r"[1-9]\d* missing, 0 surplus"):
        check_migration(case, 0, old, new, HYBRID, start=3, background_epochs=None)


def test_a_node_that_both_plans_have_runs_once_and_its_state_is_unchanged():
    run, unchanged = run_migration(SHARING, "((a b) d) c"), run_unchanged()
    assert run.running == [3, 4, 5, 6]
    for migrated_manifest, unchanged_manifest in zip(run.manifests, unchanged.manifests, strict=True):
        assert slices_of(migrated_manifest, "a", "b", "a,b") == slices_of(unchanged_manifest, "a", "b", "a,b")
        assert slices_of(migrated_manifest, "a,b")
    assert {s.owner.state for s in run.manifests[-1].slices} == {*"abcd", "a,b", "a,b,d@1"}
    # More rows are inserted: into the states of the other streams.
    both = run.work[START]["both"]
    assert replace(both, inserted_rows=0) == replace(work_of("ab", "a b"), inserted_rows=0)
    assert {"old", "new"} < set(run.work[START])


def test_nodes_above_a_replaced_sub_plan_are_unchanged():
    run, unchanged = run_migration(SHARING, "((b c) a) d"), run_unchanged()
    assert run.running == [3, 4, 5, 6]
    for migrated_manifest, unchanged_manifest in zip(run.manifests, unchanged.manifests, strict=True):
        assert slices_of(migrated_manifest, "d") == slices_of(unchanged_manifest, "d")
        counts = [sum(s.rows for s in slices_of(m, "a,b,c")) for m in (migrated_manifest, unchanged_manifest)]
        assert counts[0] == counts[1]
    assert {s.owner.state for s in run.manifests[-1].slices} == {*"abcd", "a,b,c", "b,c@1"}
    # The node of the results runs as before: its work belongs to both plans, and is done once.
    below = work_of("abc", "(a b) c")
    whole = unchanged.work[START]["both"]
    assert run.work[START]["both"].comparisons == whole.comparisons - below.comparisons
    assert run.work[START]["both"].candidates == whole.candidates - below.candidates


def test_states_of_the_old_plan_are_dropped_when_the_migration_ends():
    run = MigrationRun().go(START)
    run.migrate("((b d) a) c", SHARING)
    run.go(6)
    (end,) = run.ends
    assert slices_of(run.manifests[end - 1], "a,b")
    states = [{s.owner.state for s in m.slices} for m in run.manifests]
    assert all(ids == {*"abcd", "b,d@1", "a,b,d@1"} for ids in states[end:])


def test_states_without_use_for_future_rows_are_dropped_at_once():
    run = run_migration(HYBRID)
    assert slices_of(run.manifests[START - 1], "a,b")
    # Their rows are joined only with rows of c and d, and the old plan drops new ones of these.
    assert not slices_of(run.manifests[START], "a,b")
    assert not slices_of(run.manifests[START], "a,b,c")
    assert any(work.get("old", WorkCounts()).probes for work in run.work[START:])


def test_a_state_stores_only_rows_that_may_become_results_of_the_old_plan():
    run, unchanged = run_migration(SHARING, "((b d) a) c"), run_unchanged()
    before, migrating, unchanged_rows = (
        sum(s.rows for s in slices_of(manifest, "a,b"))
        for manifest in (run.manifests[START - 1], run.manifests[START], unchanged.manifests[START])
    )
    assert (before, unchanged_rows) == (START**2, (START + 1) ** 2)
    # The old plan produces results with an old b; of the new rows it stores the new a with each old b.
    assert migrating == before + START


@pytest.mark.parametrize("new", [REORDERED, "((b c) a) d", "(a d) (b c)", "((a b) d) c", "a b c d"])
def test_isolated_plans_never_compare_or_store_more_than_parallel_track(new: str):
    isolated, parallel = run_migration(ISOLATED, new), run_migration(PARALLEL_TRACK, new)
    for epoch in range(12):
        both = (isolated, parallel)
        comparisons = [sum(work.comparisons for work in run.work[epoch].values()) for run in both]
        assert comparisons[0] <= comparisons[1]
        stored_rows = [sum(s.rows for s in run.manifests[epoch].slices) for run in both]
        assert stored_rows[0] <= stored_rows[1]
    assert_same_rows(isolated.all_results, parallel.all_results)


def test_the_next_migration_shares_states_of_the_last_one():
    run = MigrationRun().go(START)
    run.migrate(REORDERED, HYBRID)
    run.go(5)
    run.migrate("(c d) (a b)", SHARING)
    run.go(8)
    states = {s.owner.state for s in run.manifests[-1].slices}
    assert states == {*"abcd", "c,d@1", "a,b@2"}
    assert run.manifests[-1].migrations == 2
    assert_same_rows(run.all_results, run_unchanged(16).all_results)
