"""Who makes what: the old plan's share only shrinks, and no state keeps what nobody can use."""

from __future__ import annotations

from itertools import pairwise

import pyarrow as pa
import pytest
from msgspec.structs import replace

from midstream.engine.work import WorkCounts
from midstream.migration import lifecycle
from midstream.migration.handover import complete
from midstream.plan.tree import parse_plan
from midstream.protocol.settings import Settings
from midstream.testing import Shape, assert_same_rows
from midstream.testing.random_streams import SECOND
from midstream.values import Micros
from tests.migration.migration_cases import CLIQUE, MigrationCase, StrategyCase, check_migration
from tests.migration.recorded_run import (
    HYBRID,
    ISOLATED,
    PARALLEL_TRACK,
    REORDERED,
    SHARING,
    START,
    Run,
    entries_of,
    run_migration,
    run_unchanged,
    slices_of,
    work_of,
)


@pytest.mark.parametrize("how", [SHARING, ISOLATED, HYBRID, PARALLEL_TRACK], ids=str)
def test_the_work_of_the_old_plan_falls_to_nothing(how: StrategyCase):
    run, theirs = run_migration(how), run_unchanged()
    (end,) = run.ends
    old = [work.get("old", WorkCounts()).comparisons for work in run.work]
    assert all(count > 0 for count in old[START : START + 2])
    assert old[:START] == [0] * START
    assert old[end:] == [0] * (12 - end)
    alone = [sum(work.comparisons for work in sides.values()) for sides in theirs.work]
    assert all(mine <= whole for mine, whole in zip(old, alone, strict=True))


def test_the_old_plan_drops_at_once_what_is_not_its_to_make():
    (whole,) = run_unchanged().work[START].values()
    tracks = run_migration(PARALLEL_TRACK).work[START]["old"]
    mine = run_migration(SHARING).work[START]["old"]
    # There are three rows of each stream, and one more of each comes. Parallel track does it all as ever.
    assert tracks.comparisons == whole.comparisons
    # Hybrid leaves new rows of c and d alone, as well as all that they would meet.
    new_pairs = 4**2 - 3**2
    assert mine.comparisons == (3 + 4) + new_pairs * 3 + new_pairs * 3 * 3


def test_with_background_work_it_falls_sooner():
    old = [
        sum(work.get("old", WorkCounts()).comparisons for work in run_migration(how).work)
        for how in (HYBRID, SHARING, PARALLEL_TRACK)
    ]
    assert old == sorted(old)
    assert len(set(old)) == 3


@pytest.mark.parametrize("new", [REORDERED, "((b c) a) d", "(a d) (b c)", "((a b) d) c", "((d b) a) c"])
@pytest.mark.parametrize("how", [SHARING, ISOLATED, HYBRID, PARALLEL_TRACK], ids=str)
@pytest.mark.parametrize("pace", [1, 2, None])
def test_tables_only_shrink_unless_a_state_is_complete(new: str, how: StrategyCase, pace: int | None):
    run = run_migration(how, new, pace=pace)
    assert len(run.ends) == 1
    for before, after in pairwise(run.manifests[START:]):
        was, now = entries_of(before.migration), entries_of(after.migration)
        for entry in now:
            below = [e for e in was if set(e.state.streams) < set(entry.state.streams)]
            risen = how == HYBRID and any(e.bounds.items() <= entry.bounds.items() for e in below)
            assert entry in was or risen
            # Nobody may lack rows of epochs that are yet to come.
            assert all(bound <= after.epoch + 1 for bound in entry.bounds.values())
        assert len(now) <= len(was)


def test_siblings_are_bound_by_when_a_state_was_completed_not_by_the_start(monkeypatch):
    ground = MigrationCase(CLIQUE, Shape(rows=3, keys=3, lateness=Micros(4 * SECOND)), 30, Settings(1, 4), 11)
    old, new = (parse_plan(text, "abcd") for text in ("b ((a c) d)", "c ((a b) d)"))
    check_migration(ground, 0, old, new, HYBRID, start=3, pace=None)

    def as_printed(tables, layout, state, epoch):
        start = min(bound for entry in tables[layout.root] for bound in entry.bounds.values())
        return complete(tables, layout, state, start)

    monkeypatch.setattr(lifecycle, "complete", as_printed)
    with pytest.raises(AssertionError, match=r"[1-9]\d* missing, 0 surplus"):
        check_migration(ground, 0, old, new, HYBRID, start=3, pace=None)


def test_a_part_that_both_plans_have_is_computed_once_and_its_state_stays_as_it_is():
    run, theirs = run_migration(SHARING, "((a b) d) c"), run_unchanged()
    assert run.running == [3, 4, 5, 6]
    for mine, other in zip(run.manifests, theirs.manifests, strict=True):
        assert slices_of(mine, "a", "b", "a,b") == slices_of(other, "a", "b", "a,b")
        assert slices_of(mine, "a,b")
    assert {s.owner.state for s in run.manifests[-1].slices} == {*"abcd", "a,b", "a,b,d@1"}
    # What is put into states is more: those of the streams above.
    both = run.work[START]["both"]
    assert replace(both, inserted=0) == replace(work_of("ab", "a b"), inserted=0)
    assert {"old", "new"} < set(run.work[START])


def test_above_the_part_that_changes_nothing_changes():
    run, theirs = run_migration(SHARING, "((b c) a) d"), run_unchanged()
    assert run.running == [3, 4, 5, 6]
    for mine, other in zip(run.manifests, theirs.manifests, strict=True):
        assert slices_of(mine, "d") == slices_of(other, "d")
        counts = [sum(s.rows for s in slices_of(m, "a,b,c")) for m in (mine, other)]
        assert counts[0] == counts[1]
    assert {s.owner.state for s in run.manifests[-1].slices} == {*"abcd", "a,b,c", "b,c@1"}
    # The node of the results goes on as before: its work belongs to both plans, and is done once.
    below = work_of("abc", "(a b) c")
    whole = theirs.work[START]["both"]
    assert run.work[START]["both"].comparisons == whole.comparisons - below.comparisons
    assert run.work[START]["both"].candidates == whole.candidates - below.candidates


def test_states_of_the_old_plan_are_dropped_when_the_migration_ends():
    run = Run().go(START)
    run.migrate("((b d) a) c", SHARING)
    run.go(6)
    (end,) = run.ends
    assert slices_of(run.manifests[end - 1], "a,b")
    states = [{s.owner.state for s in m.slices} for m in run.manifests]
    assert all(found == {*"abcd", "b,d@1", "a,b,d@1"} for found in states[end:])


def test_states_that_no_row_to_come_has_a_use_for_are_dropped_at_once():
    run = run_migration(HYBRID)
    assert slices_of(run.manifests[START - 1], "a,b")
    # They wait for rows of c and d, and the old plan has nothing to do with new ones of these.
    assert not slices_of(run.manifests[START], "a,b")
    assert not slices_of(run.manifests[START], "a,b,c")
    assert any(work.get("old", WorkCounts()).probes for work in run.work[START:])


def test_a_state_keeps_only_rows_that_may_become_results_of_the_old_plan():
    run, theirs = run_migration(SHARING, "((b d) a) c"), run_unchanged()
    before, mine, whole = (
        sum(s.rows for s in slices_of(manifest, "a,b"))
        for manifest in (run.manifests[START - 1], run.manifests[START], theirs.manifests[START])
    )
    assert (before, whole) == (START**2, (START + 1) ** 2)
    # The old plan makes what has an old b; of the new rows it keeps the new a with each old b.
    assert mine == before + START


@pytest.mark.parametrize("new", [REORDERED, "((b c) a) d", "(a d) (b c)", "((a b) d) c", "a b c d"])
def test_plans_apart_never_compare_more_or_keep_more_than_parallel_track(new: str):
    mine, theirs = run_migration(ISOLATED, new), run_migration(PARALLEL_TRACK, new)
    for epoch in range(12):
        compared, tracked = (
            sum(work.comparisons for work in run.work[epoch].values()) for run in (mine, theirs)
        )
        assert compared <= tracked
        kept, held = (sum(s.rows for s in run.manifests[epoch].slices) for run in (mine, theirs))
        assert kept <= held
    assert_same_rows(pa.concat_tables(mine.tables), pa.concat_tables(theirs.tables))


def test_the_next_migration_finds_the_states_of_the_last_one():
    run = run_migration(HYBRID, epochs=8)
    run.migrate("(c d) (a b)", SHARING)
    run.go(8)
    states = {s.owner.state for s in run.manifests[-1].slices}
    assert states == {*"abcd", "c,d@1", "a,b@2"}
    assert run.manifests[-1].migrations == 2
    assert_same_rows(pa.concat_tables(run.tables), pa.concat_tables(run_unchanged(16).tables))
