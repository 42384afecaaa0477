"""The course of a migration: how it begins, what each epoch does, when it ends, and who is told."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise

import pyarrow as pa
import pytest
from msgspec.structs import replace

from midstream.engine.node import WorkDone
from midstream.errors import OptionError, PlanError
from midstream.inline import InlineJoin
from midstream.migration import course
from midstream.migration.explain import explain_query
from midstream.migration.table import complete
from midstream.plan.explain import StateSize
from midstream.plan.layout import Side, streams_of
from midstream.plan.tree import parse_plan
from midstream.protocol.events import Event, events_of
from midstream.protocol.settings import Settings
from midstream.query.query import Query
from midstream.state.manifest import Manifest
from midstream.state.migration import Entry, Migration
from midstream.state.slices import Slice
from midstream.storage.memory import MemoryStore
from midstream.testing import Shape, assert_same_rows
from midstream.testing.streams import SECOND
from midstream.values import Micros
from tests.helpers import rows, small_query
from tests.migration.runs import CLIQUE, HOWS, Ground, How, check_migration

ON = ["a.k = b.k", "b.k = c.k", "c.k = d.k"]
QUERY = small_query(ON, "abcd", everywhere=30, select=["a.v as a", "b.v as b", "c.v as c", "d.v as d"])
ENDLESS = small_query(ON, "abcd", select=["a.v as a", "b.v as b", "c.v as c", "d.v as d"])
LEFT_DEEP, TURNED = "((a b) c) d", "((c d) a) b"
BEGIN = 3
HYBRID = How("hybrid")
SHARING = How("hybrid", background=False, apart=False)
APART = How("hybrid", background=False, apart=True)
PARALLEL_TRACK = How("parallel_track")


def arrivals(epoch: int) -> dict[str, pa.Table]:
    """A row of each stream in every epoch, ten microseconds after the last one; all keys are equal."""
    return {name: rows((10 * epoch, 1, 1, f"{name}{epoch}")) for name in "abcd"}


@dataclass
class Run:
    """A run that notes what holds after each epoch."""

    query: Query = QUERY
    plan: str = LEFT_DEEP
    store: MemoryStore = field(default_factory=MemoryStore)
    manifests: list[Manifest] = field(default_factory=list)
    work: list[dict[Side, WorkDone]] = field(default_factory=list)
    tables: list[pa.Table] = field(default_factory=list)
    events: list[list[Event]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.reopen()

    def reopen(self) -> None:
        self.join = InlineJoin(self.query, self.plan, settings=Settings(1, 1), store=self.store)

    def migrate(self, plan: str, how: How = HYBRID) -> None:
        how.migrate(self.join, plan)

    def go(self, epochs: int, pace: int | None = None) -> Run:
        for _ in range(epochs):
            before = self.join.manifest
            self.tables.append(self.join.epoch(arrivals(before.epoch + 1), pace=pace))
            self.manifests.append(self.join.manifest)
            self.work.append(self.join.report.work_by_plan)
            self.events.append(events_of(self.query, before, self.join.manifest))
        return self

    @property
    def running(self) -> list[int]:
        """The epochs after which a migration was under way."""
        return [m.epoch for m in self.manifests if m.migration is not None]

    @property
    def ends(self) -> dict[int, str]:
        """The epochs with which migrations were over, and to which plan."""
        return {m.epoch: m.ended.plan for m in self.manifests if m.ended is not None}

    def told(self) -> list[tuple[int, str]]:
        return [(epoch, event["type"]) for epoch, events in enumerate(self.events) for event in events]


def a_migration(
    how: How, new: str = TURNED, epochs: int = 12, pace: int | None = None, query: Query = QUERY
) -> Run:
    run = Run(query).go(BEGIN)
    run.migrate(new, how)
    return run.go(epochs - BEGIN, pace)


def slices_of(manifest: Manifest, *states: str) -> list[Slice]:
    return [s for s in manifest.slices if s.owner.state in states]


def entries_of(migration: Migration | None) -> list[Entry]:
    tables = migration.tables if migration else {}
    return [entry for entries in tables.values() for entry in entries]


def work_of(names: str, plan: str) -> WorkDone:
    """What a part of the query does by itself in the epoch that migrations begin in."""
    on = [f"a.k = {name}.k" for name in names[1:]]
    join = InlineJoin(small_query(on, names, everywhere=30), plan, settings=Settings(1, 1))
    for epoch in range(BEGIN + 1):
        join.epoch({name: table for name, table in arrivals(epoch).items() if name in names})
    return join.report.work


def stayed(epochs: int = 12, query: Query = QUERY) -> Run:
    return Run(query).go(epochs)


def test_moving_state_is_over_in_the_epoch_that_it_begins_in():
    run = a_migration(How("moving_state"))
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
        [Entry("c,d@1", {"c": BEGIN, "d": BEGIN})]
    ] * 4


def test_parallel_track_ends_after_one_window_too_and_then_releases_what_it_held():
    run = a_migration(PARALLEL_TRACK)
    assert run.ends == {7: TURNED}
    held = [sum(s.rows for s in m.slices if s.owner.kind == "held") for m in run.manifests]
    assert held[:BEGIN] == [0, 0, 0]
    assert 0 < held[3] < held[4] < held[5] < held[6]
    assert held[7:] == [0] * 5
    theirs = [table.num_rows for table in stayed().tables]
    assert run.tables[7].num_rows == theirs[7] + held[6]
    assert_same_rows(pa.concat_tables(run.tables), pa.concat_tables(stayed().tables))


def test_hybrid_with_background_completes_one_state_after_the_other():
    run = a_migration(HYBRID)
    assert [entries_of(m.migration) for m in run.manifests[3:6]] == [
        [Entry("c,d@1", {"c": 3, "d": 3})],
        [Entry("a,c,d@1", {"a": 5, "c": 3, "d": 3})],
        [],
    ]
    assert run.ends == {6: TURNED}


def test_hybrid_with_background_ends_without_a_window():
    run = a_migration(HYBRID, query=ENDLESS)
    assert run.ends == {6: TURNED}
    assert_same_rows(pa.concat_tables(run.tables), pa.concat_tables(stayed(query=ENDLESS).tables))


@pytest.mark.parametrize(("pace", "epochs"), [(None, 1), (4, 1), (2, 2), (1, 3)])
def test_a_slower_pace_takes_more_epochs_for_a_state(pace, epochs):
    run = a_migration(HYBRID, query=ENDLESS, pace=pace)
    scopes = [{entry.scope for entry in entries_of(m.migration)} for m in run.manifests]
    lacks = [epoch for epoch, scope in enumerate(scopes) if "c,d@1" in scope]
    # There are rows of three epochs to go through. The epoch that it begins in does nothing yet.
    assert lacks == list(range(BEGIN, BEGIN + epochs))
    assert_same_rows(pa.concat_tables(run.tables), pa.concat_tables(stayed(query=ENDLESS).tables))


def test_without_any_pace_the_migration_waits():
    run = a_migration(HYBRID, query=ENDLESS, pace=0)
    assert run.running == list(range(BEGIN, 12))
    assert entries_of(run.manifests[-1].migration) == [Entry("c,d@1", {"c": 3, "d": 3})]


@pytest.mark.parametrize("how", [SHARING, APART, HYBRID, PARALLEL_TRACK], ids=str)
def test_the_work_of_the_old_plan_falls_to_nothing(how: How):
    run, theirs = a_migration(how), stayed()
    (end,) = run.ends
    old = [work.get("old", WorkDone()).comparisons for work in run.work]
    assert all(count > 0 for count in old[BEGIN : BEGIN + 2])
    assert old[:BEGIN] == [0] * BEGIN
    assert old[end:] == [0] * (12 - end)
    alone = [sum(work.comparisons for work in sides.values()) for sides in theirs.work]
    assert all(mine <= whole for mine, whole in zip(old, alone, strict=True))


def test_the_old_plan_drops_at_once_what_is_not_its_to_make():
    (whole,) = stayed().work[BEGIN].values()
    tracks = a_migration(PARALLEL_TRACK).work[BEGIN]["old"]
    mine = a_migration(SHARING).work[BEGIN]["old"]
    # There are three rows of each stream, and one more of each comes. Parallel track does it all as ever.
    assert tracks.comparisons == whole.comparisons
    # Hybrid leaves new rows of c and d alone, as well as all that they would meet.
    new_pairs = 4**2 - 3**2
    assert mine.comparisons == (3 + 4) + new_pairs * 3 + new_pairs * 3 * 3


def test_with_background_work_it_falls_sooner():
    old = [
        sum(work.get("old", WorkDone()).comparisons for work in a_migration(how).work)
        for how in (HYBRID, SHARING, PARALLEL_TRACK)
    ]
    assert old == sorted(old)
    assert len(set(old)) == 3


@pytest.mark.parametrize("new", [TURNED, "((b c) a) d", "(a d) (b c)", "((a b) d) c", "((d b) a) c"])
@pytest.mark.parametrize("how", [SHARING, APART, HYBRID, PARALLEL_TRACK], ids=str)
@pytest.mark.parametrize("pace", [1, 2, None])
def test_tables_only_shrink_unless_a_state_is_complete(new: str, how: How, pace: int | None):
    run = a_migration(how, new, pace=pace)
    assert len(run.ends) == 1
    for before, after in pairwise(run.manifests[BEGIN:]):
        was, now = entries_of(before.migration), entries_of(after.migration)
        for entry in now:
            below = [e for e in was if set(streams_of(e.scope)) < set(streams_of(entry.scope))]
            risen = how == HYBRID and any(e.bounds.items() <= entry.bounds.items() for e in below)
            assert entry in was or risen
            # Nobody may lack rows of epochs that are yet to come.
            assert all(bound <= after.epoch + 1 for bound in entry.bounds.values())
        assert len(now) <= len(was)


def test_siblings_are_bound_by_when_a_state_was_completed_not_by_the_start(monkeypatch):
    ground = Ground(CLIQUE, Shape(rows=3, keys=3, lateness=Micros(4 * SECOND)), 30, Settings(1, 4), 11)
    old, new = (parse_plan(text, "abcd") for text in ("b ((a c) d)", "c ((a b) d)"))
    check_migration(ground, 0, old, new, HYBRID, start=3, pace=None)

    def as_printed(tables, layout, state, epoch):
        start = min(bound for entry in tables[layout.root] for bound in entry.bounds.values())
        return complete(tables, layout, state, start)

    monkeypatch.setattr(course, "complete", as_printed)
    with pytest.raises(AssertionError, match=r"[1-9]\d* missing, 0 surplus"):
        check_migration(ground, 0, old, new, HYBRID, start=3, pace=None)


def test_a_part_that_both_plans_have_is_computed_once_and_its_state_stays_as_it_is():
    run, theirs = a_migration(SHARING, "((a b) d) c"), stayed()
    assert run.running == [3, 4, 5, 6]
    for mine, other in zip(run.manifests, theirs.manifests, strict=True):
        assert slices_of(mine, "a", "b", "a,b") == slices_of(other, "a", "b", "a,b")
        assert slices_of(mine, "a,b")
    assert {s.owner.state for s in run.manifests[-1].slices} == {*"abcd", "a,b", "a,b,d@1"}
    # What is put into states is more: those of the streams above.
    both = run.work[BEGIN]["both"]
    assert replace(both, inserted=0) == replace(work_of("ab", "a b"), inserted=0)
    assert {"old", "new"} < set(run.work[BEGIN])


def test_above_the_part_that_changes_nothing_changes():
    run, theirs = a_migration(SHARING, "((b c) a) d"), stayed()
    assert run.running == [3, 4, 5, 6]
    for mine, other in zip(run.manifests, theirs.manifests, strict=True):
        assert slices_of(mine, "d") == slices_of(other, "d")
        counts = [sum(s.rows for s in slices_of(m, "a,b,c")) for m in (mine, other)]
        assert counts[0] == counts[1]
    assert {s.owner.state for s in run.manifests[-1].slices} == {*"abcd", "a,b,c", "b,c@1"}
    # The node of the results goes on as before: its work belongs to both plans, and is done once.
    below = work_of("abc", "(a b) c")
    whole = theirs.work[BEGIN]["both"]
    assert run.work[BEGIN]["both"].comparisons == whole.comparisons - below.comparisons
    assert run.work[BEGIN]["both"].candidates == whole.candidates - below.candidates


def test_states_of_the_old_plan_are_dropped_when_the_migration_ends():
    run = Run().go(BEGIN)
    run.migrate("((b d) a) c", SHARING)
    run.go(6)
    (end,) = run.ends
    assert slices_of(run.manifests[end - 1], "a,b")
    states = [{s.owner.state for s in m.slices} for m in run.manifests]
    assert all(found == {*"abcd", "b,d@1", "a,b,d@1"} for found in states[end:])


def test_states_that_no_row_to_come_has_a_use_for_are_dropped_at_once():
    run = a_migration(HYBRID)
    assert slices_of(run.manifests[BEGIN - 1], "a,b")
    # They wait for rows of c and d, and the old plan has nothing to do with new ones of these.
    assert not slices_of(run.manifests[BEGIN], "a,b")
    assert not slices_of(run.manifests[BEGIN], "a,b,c")
    assert any(work.get("old", WorkDone()).probes for work in run.work[BEGIN:])


def test_a_state_keeps_only_rows_that_may_become_results_of_the_old_plan():
    run, theirs = a_migration(SHARING, "((b d) a) c"), stayed()
    before, mine, whole = (
        sum(s.rows for s in slices_of(manifest, "a,b"))
        for manifest in (run.manifests[BEGIN - 1], run.manifests[BEGIN], theirs.manifests[BEGIN])
    )
    assert (before, whole) == (BEGIN**2, (BEGIN + 1) ** 2)
    # The old plan makes what has an old b; of the new rows it keeps the new a with each old b.
    assert mine == before + BEGIN


@pytest.mark.parametrize("new", [TURNED, "((b c) a) d", "(a d) (b c)", "((a b) d) c", "a b c d"])
def test_plans_apart_never_compare_more_or_keep_more_than_parallel_track(new: str):
    mine, theirs = a_migration(APART, new), a_migration(PARALLEL_TRACK, new)
    for epoch in range(12):
        compared, tracked = (
            sum(work.comparisons for work in run.work[epoch].values()) for run in (mine, theirs)
        )
        assert compared <= tracked
        kept, held = (sum(s.rows for s in run.manifests[epoch].slices) for run in (mine, theirs))
        assert kept <= held
    assert_same_rows(pa.concat_tables(mine.tables), pa.concat_tables(theirs.tables))


def test_the_next_migration_finds_the_states_of_the_last_one():
    run = a_migration(HYBRID, epochs=8)
    run.migrate("(c d) (a b)", SHARING)
    run.go(8)
    states = {s.owner.state for s in run.manifests[-1].slices}
    assert states == {*"abcd", "c,d@1", "a,b@2"}
    assert run.manifests[-1].migrations == 2
    assert_same_rows(pa.concat_tables(run.tables), pa.concat_tables(stayed(16).tables))


def test_a_request_for_the_running_plan_changes_nothing():
    run = Run().go(2)
    run.migrate(LEFT_DEEP)
    run.go(2)
    assert run.join.manifest.migrations == 0
    assert run.told() == []
    assert run.running == []
    assert run.store.list("requests") == []
    assert [m.slices for m in run.manifests] == [m.slices for m in stayed(4).manifests]


def test_a_request_waits_for_the_migration_that_is_under_way_and_the_last_one_counts():
    run = Run().go(BEGIN)
    run.migrate(TURNED, SHARING)
    run.go(1)
    run.migrate("a b c d", How("moving_state"))
    run.go(1)
    run.migrate("(a d) (b c)", HYBRID)
    run.go(9)
    assert run.ends == {7: TURNED, 11: "(a d) (b c)"}
    begun = [(e["migration"], e["from"], e["to"]) for es in run.events for e in es if "begins" in e["type"]]
    assert begun == [(1, LEFT_DEEP, TURNED), (2, TURNED, "(a d) (b c)")]
    assert run.manifests[8].migration is not None
    assert run.manifests[8].migration.start == 8
    assert run.store.list("requests") == []
    assert_same_rows(pa.concat_tables(run.tables), pa.concat_tables(stayed(14).tables))


def test_a_request_back_to_the_old_plan_waits_as_well():
    run = Run().go(BEGIN)
    run.migrate(TURNED, SHARING)
    run.go(1)
    run.migrate(LEFT_DEEP, How("moving_state"))
    run.go(8)
    assert run.ends == {7: TURNED, 8: LEFT_DEEP}


def test_a_request_outlives_the_query_that_it_was_made_to():
    run = Run().go(BEGIN)
    run.migrate(TURNED, SHARING)
    run.reopen()
    run.go(1)
    assert run.running == [BEGIN]
    run.migrate("a b c d", How("moving_state"))
    run.reopen()
    run.go(8)
    assert run.ends == {7: TURNED, 8: "a b c d"}
    run.reopen()
    run.go(1)
    assert run.join.manifest.migrations == 2
    assert run.join.manifest.plan == "a b c d"


@pytest.mark.parametrize("how", HOWS, ids=str)
def test_a_migration_goes_on_after_every_restart(how: How):
    run = Run().go(BEGIN)
    run.migrate(TURNED, how)
    for _ in range(9):
        run.reopen()
        run.go(1, pace=1)
    whole = a_migration(how, pace=1)
    assert [m.migration for m in run.manifests] == [m.migration for m in whole.manifests]
    assert run.ends == whole.ends
    for mine, theirs in zip(run.tables, whole.tables, strict=True):
        assert_same_rows(mine, theirs)


@pytest.mark.parametrize("plan", ["((a b) c) e", "(a b) c", "a a b c d", "((a b) c d", ""])
def test_a_request_must_be_for_a_plan_of_these_streams(plan):
    run = Run().go(1)
    with pytest.raises(PlanError):
        run.migrate(plan)
    assert run.store.list("requests") == []


def test_a_request_must_name_a_strategy_that_there_is():
    run = Run().go(1)
    with pytest.raises(OptionError, match=r"moving_state, parallel_track, hybrid; got 'slowly'"):
        run.join.migrate(TURNED, "slowly")  # type: ignore[arg-type]  # it is what is tested
    assert run.store.list("requests") == []


@pytest.mark.parametrize("how", [SHARING, APART, PARALLEL_TRACK], ids=str)
def test_what_waits_for_a_window_must_have_one_between_any_two_streams(how: How):
    run = Run(small_query(ON, "abcd", pairs={("a", "b"): 30, ("b", "c"): 30}))
    with pytest.raises(OptionError, match="no window between a and d") as caught:
        run.migrate(TURNED, how)
    assert "moving_state" in str(caught.value)
    assert run.store.list("requests") == []
    run.migrate(TURNED, HYBRID)
    run.migrate(TURNED, How("moving_state"))


def test_events_say_what_began_what_is_complete_and_what_ended():
    run = a_migration(HYBRID)
    assert run.told() == [
        (3, "migration begins"),
        (4, "state complete"),
        (5, "state complete"),
        (6, "migration ends"),
    ]
    found = [event for events in run.events for event in events]
    assert [event["message"] for event in found] == [
        "migration 1 begins: from '((a b) c) d' to '((c d) a) b' by hybrid",
        "migration 1: the new plan has all of {c,d} now",
        "migration 1: the new plan has all of {a,c,d} now",
        "migration 1 has ended after 3 epochs: the plan is '((c d) a) b'",
    ]
    assert {(e["migration"], e["from"], e["to"]) for e in found} == {(1, LEFT_DEEP, TURNED)}
    assert [e.get("state") for e in found] == [None, "c,d", "a,c,d", None]


def test_moving_state_begins_and_ends_in_one_breath():
    run = a_migration(How("moving_state"))
    assert run.told() == [(3, "migration begins"), (3, "migration ends")]


def test_waiting_completes_no_state():
    run = a_migration(SHARING)
    assert run.told() == [(3, "migration begins"), (7, "migration ends")]


def test_an_explanation_shows_both_plans_and_who_makes_what():
    run = Run().go(BEGIN)
    before = explain_query(QUERY, run.join.manifest, {})
    assert before.startswith(f"Plan: {LEFT_DEEP}\n")
    assert "Migration" not in before
    run.migrate(TURNED, HYBRID)
    run.go(2)
    sizes = {"a,b": StateSize(11, 5, 1), "c,d@1": StateSize(22, 5, 1)}
    lines = explain_query(QUERY, run.join.manifest, sizes).splitlines()
    assert lines[:9] == [
        "Migration 1, by hybrid, since epoch 3",
        "  from ((a b) c) d",
        "  to   ((c d) a) b",
        "",
        "Of the results the old plan makes those in which",
        "  a arrived before epoch 5 and c arrived before epoch 3 and d arrived before epoch 3",
        "and the new plan all others.",
        "Shared states: {a}, {b}, {c}, {d}",
        "",
    ]
    old, new = lines.index("== Old plan =="), lines.index("== New plan ==")
    assert lines[old + 1] == f"Plan: {LEFT_DEEP}"
    assert lines[new + 1] == f"Plan: {TURNED}"
    assert any("{a,b}" in line and "11 rows" in line for line in lines[old:new])
    assert any("{c,d}" in line and "22 rows" in line for line in lines[new:])
    assert "@" not in "\n".join(lines)


def test_an_explanation_of_parts_says_which_rows_and_which_alternatives():
    run = Run().go(BEGIN)
    run.migrate("((b c) a) d", SHARING)
    run.go(1)
    text = explain_query(QUERY, run.join.manifest, {})
    assert (
        "Of the rows of {a,b,c} the old plan makes those in which\n  b arrived before epoch 3 and c" in text
    )
    assert "Shared states: {a,b,c}, {a}, {b}, {c}, {d}" in text
    run = Run().go(BEGIN)
    run.migrate("(a d) (b c)", PARALLEL_TRACK)
    run.go(1)
    text = explain_query(QUERY, run.join.manifest, {})
    lines = text.splitlines()
    entries = [line for line in lines if "arrived before epoch 3" in line]
    assert entries == [
        f"  {'or ' if i else ''}{line.strip().removeprefix('or ')}" for i, line in enumerate(entries)
    ]
    assert len(entries) == 4
    assert "and the new plan all others; these wait for the end." in lines
