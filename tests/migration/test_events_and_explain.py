"""What people are told of a migration: events, and explanations."""

from __future__ import annotations

from midstream.migration.explain import explain_query
from midstream.plan.explain import StateSize
from midstream.plan.state_id import StateId
from tests.migration.migration_cases import StrategyCase
from tests.migration.recorded_run import (
    BEGIN,
    HYBRID,
    LEFT_DEEP,
    PARALLEL_TRACK,
    QUERY,
    SHARING,
    TURNED,
    Run,
    a_migration,
)


def test_events_say_what_began_what_is_complete_and_what_ended():
    run = a_migration(HYBRID)
    assert run.told() == [
        (3, "migration-started"),
        (4, "state-completed"),
        (5, "state-completed"),
        (6, "migration-ended"),
    ]
    assert [event.message for event in run.events] == [
        "migration 1 started: from '((a b) c) d' to '((c d) a) b' by hybrid",
        "migration 1: the new plan has all rows of {c,d} now",
        "migration 1: the new plan has all rows of {a,c,d} now",
        "migration 1 ended after 3 epochs: the plan is '((c d) a) b'",
    ]
    told = [event.to_dict() for event in run.events]
    assert {(e["migration"], e["from"], e["to"]) for e in told} == {(1, LEFT_DEEP, TURNED)}
    assert [e.get("state") for e in told] == [None, "c,d", "a,c,d", None]


def test_moving_state_begins_and_ends_in_one_breath():
    run = a_migration(StrategyCase("moving_state"))
    assert run.told() == [(3, "migration-started"), (3, "migration-ended")]


def test_waiting_completes_no_state():
    run = a_migration(SHARING)
    assert run.told() == [(3, "migration-started"), (7, "migration-ended")]


def test_an_explanation_shows_both_plans_and_who_makes_what():
    run = Run().go(BEGIN)
    before = explain_query(QUERY, run.join.manifest, {})
    assert before.startswith(f"Plan: {LEFT_DEEP}\n")
    assert "Migration" not in before
    run.migrate(TURNED, HYBRID)
    run.go(2)
    sizes = {StateId("a,b"): StateSize(11, 5, 1), StateId("c,d@1"): StateSize(22, 5, 1)}
    lines = explain_query(QUERY, run.join.manifest, sizes).splitlines()
    assert lines[:9] == [
        "Migration 1, by hybrid, since epoch 3",
        "  from ((a b) c) d",
        "  to   ((c d) a) b",
        "",
        "Of the results the old plan produces those in which",
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
        "Of the rows of {a,b,c} the old plan produces those in which\n  b arrived before epoch 3 and c"
        in text
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
