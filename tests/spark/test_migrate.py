"""Changing the plan of a query while it runs on Spark: exact by every strategy, and reported."""

import pytest

from tests.spark.driver_course import Change
from tests.spark.migration_scenario import (
    ASKED,
    BEGUN,
    BUSHY,
    FLAT,
    LEFT_DEEP,
    ONE_KEY,
    RIGHT_DEEP,
    SEVERAL_KEYS,
    columns,
    events_of,
    rows,
)

pytestmark = pytest.mark.spark


@pytest.mark.parametrize(
    ("strategy", "background", "predicates", "old", "new", "source"),
    [
        ("moving_state", "auto", ONE_KEY, LEFT_DEEP, RIGHT_DEEP, rows),
        ("moving_state", "auto", SEVERAL_KEYS, FLAT, LEFT_DEEP, columns),
        ("moving_state", "auto", SEVERAL_KEYS, LEFT_DEEP, RIGHT_DEEP, columns),
        ("parallel_track", "auto", SEVERAL_KEYS, LEFT_DEEP, BUSHY, rows),
        ("parallel_track", "auto", SEVERAL_KEYS, RIGHT_DEEP, FLAT, columns),
        ("hybrid", "off", ONE_KEY, FLAT, BUSHY, columns),
        ("hybrid", "off", SEVERAL_KEYS, BUSHY, RIGHT_DEEP, columns),
        ("hybrid", "auto", SEVERAL_KEYS, RIGHT_DEEP, LEFT_DEEP, rows),
        ("hybrid", "auto", SEVERAL_KEYS, LEFT_DEEP, BUSHY, columns),
    ],
)
def test_a_query_changes_its_plan_while_it_runs(scenario, strategy, background, predicates, old, new, source):
    join = scenario.join_of(predicates, source)
    query = scenario.run(Change(ASKED, new, strategy, background), join=join, plan=old)
    assert str(query.plan) == new
    assert [p["plan"] for p in query.recentProgress[:BEGUN]] == [old] * BEGUN
    migrating = [p for p in query.recentProgress if p["migration"]]
    assert migrating[0]["batchId"] == BEGUN
    assert migrating[-1]["migration"]["phase"] == "ended"
    assert (len(migrating) == 1) == (strategy == "moving_state")
    events = [event["type"] for event in events_of(query) if "migration" in event]
    events = [kind for kind in events if kind != "migration-judged"]
    assert (events[0], events[-1]) == ("migration-started", "migration-ended")
    scenario.check(join())


def test_progress_and_explain_show_both_plans_until_the_migration_ends(scenario):
    texts = {}

    def look(query, point):
        if point == "before the step":
            texts[query._handler.manifest.epoch] = (str(query.plan), query.explanation())

    query = scenario.run(Change(ASKED, RIGHT_DEEP, "hybrid", "off"), look=look, plan=LEFT_DEEP)
    before, during, *_ = query.recentProgress[ASKED:]
    assert before["migration"] is None
    assert set(before["work"]["byPlan"]) == {"both"}
    assert during["plan"] == LEFT_DEEP
    assert during["migration"] == {
        "id": 1,
        "from": LEFT_DEEP,
        "to": RIGHT_DEEP,
        "strategy": "hybrid",
        "startEpoch": BEGUN,
        "phase": "both plans",
    }
    by_plan = during["work"]["byPlan"]
    assert set(by_plan) == {"both", "old", "new"}
    # The states of the streams belong to both plans; no node does.
    assert by_plan["both"]["insertedRows"] > by_plan["both"]["probes"] == 0
    assert min(by_plan["old"]["probes"], by_plan["new"]["probes"]) > 0
    assert sum(work["candidates"] for work in by_plan.values()) == during["work"]["candidates"]
    assert [(e["type"], e["from"], e["to"]) for e in during["events"]] == [
        ("migration-started", LEFT_DEEP, RIGHT_DEEP)
    ]
    plan, text = texts[BEGUN]
    assert plan == LEFT_DEEP
    assert f"Migration 1, by hybrid, since epoch {BEGUN}" in text
    assert f"c arrived before epoch {BEGUN}" in text
    old, new = text.partition("== Old plan ==")[2].split("== New plan ==")
    assert f"Plan: {LEFT_DEEP}" in old
    assert f"Plan: {RIGHT_DEEP}" in new
    (ended,) = (p for p in query.recentProgress if p["migration"] and p["migration"]["phase"] == "ended")
    assert ended["plan"] == RIGHT_DEEP
    assert [event["type"] for event in ended["events"]] == ["migration-ended"]
    assert set(query.lastProgress["work"]["byPlan"]) == {"both"}
    assert query.lastProgress["migration"] is None
    assert f"Plan: {RIGHT_DEEP}" in query.explanation()
    assert "Migration" not in query.explanation()
    scenario.check()


def test_background_work_is_reported_state_by_state(scenario):
    query = scenario.run(Change(ASKED, RIGHT_DEEP, "hybrid"), plan=LEFT_DEEP)
    phases = [p["migration"]["phase"] for p in query.recentProgress if p["migration"]]
    assert phases[:2] == ["both plans", "rebuilding {c,d}"]
    assert phases[-1] == "ended"
    scenario.check()


def test_parallel_track_keeps_results_back_until_it_ends(scenario):
    query = scenario.run(Change(ASKED, RIGHT_DEEP, "parallel_track"), plan=LEFT_DEEP)
    results = [p["numOutputRows"] for p in query.recentProgress]
    (ended,) = (p["batchId"] for p in query.recentProgress if "migration-ended" in str(p["events"]))
    assert ended > BEGUN + 1
    assert results[ended] > max(results[BEGUN:ended])
    scenario.check()


@pytest.mark.parametrize("strategy", ["moving_state", "parallel_track", "hybrid"])
def test_a_migration_goes_on_after_the_query_was_stopped(scenario, strategy):
    join = scenario.join_of(SEVERAL_KEYS, columns)
    # The request is made in the last epoch of the first run, and found by the second.
    query = scenario.run(Change(1, RIGHT_DEEP, strategy), join=join, epochs=2, plan=LEFT_DEEP)
    assert str(query.plan) == LEFT_DEEP
    phases = []
    for count in (1, 1, 3):
        query = scenario.run(join=join, epochs=count)
        phases += [p["migration"] and p["migration"]["phase"] for p in query.recentProgress]
    assert phases[0] == ("ended" if strategy == "moving_state" else "both plans")
    assert phases.count("ended") == 1
    assert str(query.plan) == RIGHT_DEEP
    scenario.check(join())
