"""Events and explanations of a migration."""

from __future__ import annotations

import re

from midstream.migration.explain import explain_query
from midstream.plan.explain import StateSize
from midstream.plan.state_id import StateId
from tests.migration.migration_cases import StrategyCase
from tests.migration.migration_run import (
    HYBRID,
    ISOLATED,
    LEFT_DEEP,
    PARALLEL_TRACK,
    QUERY,
    REORDERED,
    SHARING,
    START,
    WITHOUT_WINDOW,
    MigrationRun,
    arrivals,
    run_migration,
)


def test_events_of_start_completed_states_and_end():
    run = run_migration(HYBRID)
    assert run.event_types() == [
        (3, "migration-started"),
        (4, "state-completed"),
        (5, "state-completed"),
        (6, "migration-ended"),
        (8, "migration-judged"),
    ]
    assert [event.message for event in run.events[:-1]] == [
        "migration 1 started: from '((a b) c) d' to '((c d) a) b' by hybrid",
        "migration 1: the new plan has all rows of {c,d} now",
        "migration 1: the new plan has all rows of {a,c,d} now",
        "migration 1 ended after 3 epochs: the plan is '((c d) a) b'",
    ]
    events = [event.to_dict() for event in run.events]
    assert {(e["migration"], e["from"], e["to"]) for e in events} == {(1, LEFT_DEEP, REORDERED)}
    assert [e.get("state") for e in events] == [None, "c,d", "a,c,d", None, None]


def test_moving_state_begins_and_ends_in_one_epoch():
    run = run_migration(StrategyCase("moving_state"))
    assert run.event_types() == [(3, "migration-started"), (3, "migration-ended"), (5, "migration-judged")]


def test_without_background_work_no_state_is_completed():
    run = run_migration(SHARING)
    assert run.event_types() == [(3, "migration-started"), (7, "migration-ended"), (9, "migration-judged")]


def test_an_explanation_shows_both_plans_and_their_shares():
    run = MigrationRun().go(START)
    before = explain_query(QUERY, run.join.manifest, {})
    assert before.startswith(f"Plan: {LEFT_DEEP}\n")
    assert "Migration" not in before
    run.migrate(REORDERED, HYBRID)
    run.go(2)
    sizes = {StateId("a,b"): StateSize(11, 5, 1), StateId("c,d@1"): StateSize(22, 5, 1)}
    lines = explain_query(QUERY, run.join.manifest, sizes).splitlines()
    assert lines[:10] == [
        "Migration 1, by hybrid, since epoch 3",
        "  from ((a b) c) d",
        "  to   ((c d) a) b",
        "It ends when the missing states are rebuilt, or when the rows from before it have expired, "
        "in 10 microseconds of event time.",
        "",
        "Of the results the old plan produces those in which",
        "  a arrived before epoch 5 and c arrived before epoch 3 and d arrived before epoch 3",
        "and the new plan all others.",
        "Shared states: {a}, {b}, {c}, {d}",
        "",
    ]
    old, new = lines.index("== Old plan =="), lines.index("== New plan ==")
    assert lines[old + 1] == f"Plan: {LEFT_DEEP}"
    assert lines[new + 1] == f"Plan: {REORDERED}"
    assert any("{a,b}" in line and "11 rows" in line for line in lines[old:new])
    assert any("{c,d}" in line and "22 rows" in line for line in lines[new:])
    assert "@" not in "\n".join(lines)


def test_an_explanation_says_when_the_migration_ends():
    for how in (PARALLEL_TRACK, SHARING, ISOLATED):
        run = MigrationRun().go(START)
        run.migrate(REORDERED, how)
        lefts: list[int | None] = []
        while not run.ends:
            run.go(1)
            left = re.search(r"It ends when .* expired, in (\d+) micro", explain_query(QUERY, run.last, {}))
            ends = "\nIt ends with the next epoch: all results come from the new plan from then on.\n"
            assert (ends in explain_query(QUERY, run.last, {})) == (len(lefts) == 3)
            lefts.append(None if left is None else int(left[1]))
        # The last old rows are of 20, and expire when the watermark is beyond 50.
        assert lefts == [20, 10, 0, None, None]
        assert "Migration" not in explain_query(QUERY, run.last, {})
    # Nothing is known of a stream without rows.
    run = MigrationRun().process([{"a": arrivals(0)["a"]}])
    run.migrate(REORDERED, PARALLEL_TRACK)
    run.process([{"a": arrivals(1)["a"]}])
    assert "\nIt ends when the rows from before it have expired.\n" in explain_query(QUERY, run.last, {})
    run = MigrationRun(WITHOUT_WINDOW).go(START)
    run.migrate(REORDERED, HYBRID)
    run.go(1)
    text = explain_query(WITHOUT_WINDOW, run.last, {})
    assert "\nIt ends when the missing states are rebuilt.\n" in text


def test_an_explanation_names_the_rows_of_sub_plans_and_all_entries():
    run = MigrationRun().go(START)
    run.migrate("((b c) a) d", SHARING)
    run.go(1)
    text = explain_query(QUERY, run.join.manifest, {})
    assert (
        "Of the rows of {a,b,c} the old plan produces those in which\n  b arrived before epoch 3 and c"
        in text
    )
    assert "Shared states: {a,b,c}, {a}, {b}, {c}, {d}" in text
    run = MigrationRun().go(START)
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
