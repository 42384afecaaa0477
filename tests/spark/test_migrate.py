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
    Step,
    columns,
    events_of,
    rows,
)

pytestmark = pytest.mark.spark


CHAINS = {
    "several keys": (
        SEVERAL_KEYS,
        columns,
        LEFT_DEEP,
        18,
        [
            Step(RIGHT_DEEP, "moving_state"),
            Step(FLAT, "parallel_track"),
            Step(LEFT_DEEP, "moving_state"),
            Step(BUSHY, "hybrid"),
            Step(RIGHT_DEEP, "hybrid", "off"),
        ],
    ),
    "several keys, rows": (
        SEVERAL_KEYS,
        rows,
        RIGHT_DEEP,
        10,
        [Step(LEFT_DEEP, "hybrid"), Step(BUSHY, "parallel_track")],
    ),
    "one key": (
        ONE_KEY,
        columns,
        LEFT_DEEP,
        18,
        [
            Step(RIGHT_DEEP, "hybrid"),
            Step(LEFT_DEEP, "moving_state"),
            Step(RIGHT_DEEP, "parallel_track"),
            Step(FLAT, "moving_state"),
            Step(BUSHY, "hybrid", "off"),
        ],
    ),
    "one key, rows": (ONE_KEY, rows, LEFT_DEEP, 4, [Step(RIGHT_DEEP, "moving_state")]),
}
"""Predicates, how frames are read, the first plan, epochs, and the plans that follow."""


@pytest.mark.parametrize("chain", CHAINS)
def test_a_query_changes_its_plan_while_it_runs(scenario, chain):
    predicates, source, plan, epochs, steps = CHAINS[chain]
    join = scenario.join_of(predicates, source)
    query, asked = scenario.run_through(*steps, join=join, epochs=epochs, plan=plan)
    progress, events = query.recentProgress, events_of(query)
    for number, (step, epoch) in enumerate(zip(steps, asked, strict=True), 1):
        what = f"migration {number}, from {plan}: {step}"
        migrating = [p for p in progress if p["migration"] and p["migration"]["id"] == number]
        begun, ended = migrating[0]["batchId"], migrating[-1]["batchId"]
        assert begun == epoch + 1, what
        assert [p["plan"] for p in progress[epoch - 1 : ended + 1]] == [plan] * (ended - epoch + 1) + [
            step.plan
        ], what
        assert migrating[-1]["migration"]["phase"] == "ended", what
        assert {p["migration"]["strategy"] for p in migrating} == {step.strategy}, what
        assert (len(migrating) == 1) == (step.strategy == "moving_state"), what
        kinds = [event["type"] for event in events if event.get("migration") == number]
        kinds = [kind for kind in kinds if kind != "migration-judged"]
        assert (kinds[0], kinds[-1]) == ("migration-started", "migration-ended"), what
        results = [p["numOutputRows"] for p in progress]
        if chain == "one key" and step.strategy == "parallel_track":
            assert ended > begun + 1
            assert results[ended] > max(results[begun:ended]), "results are kept back until it ends"
        if chain == "one key" and step == Step(RIGHT_DEEP, "hybrid"):
            # Background work is reported state by state.
            phases = [p["migration"]["phase"] for p in migrating]
            assert phases[:2] == ["both plans", "rebuilding {c,d}"]
        plan = step.plan
    assert str(query.plan) == plan
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


def test_migrations_go_on_after_the_query_was_stopped(scenario):
    join = scenario.join_of(SEVERAL_KEYS, columns)
    plan = LEFT_DEEP
    # The request is made in the last epoch of a run, and found by the next.
    for number, (strategy, new, lives) in enumerate(
        [
            ("moving_state", RIGHT_DEEP, (1,)),
            ("parallel_track", LEFT_DEEP, (1, 1, 3)),
            ("hybrid", RIGHT_DEEP, (1, 1, 3)),
        ]
    ):
        asked = len(scenario.feed.epochs) + 1
        query = scenario.run(Change(asked, new, strategy), join=join, epochs=2, plan=LEFT_DEEP)
        assert str(query.plan) == plan, strategy
        phases = []
        for count in lives:
            query = scenario.run(join=join, epochs=count)
            phases += [p["migration"] and p["migration"]["phase"] for p in query.recentProgress]
        assert phases[0] == ("ended" if strategy == "moving_state" else "both plans"), strategy
        assert phases.count("ended") == 1, strategy
        plan = new
        assert str(query.plan) == plan, strategy
        assert query._handler.manifest.migrations == number + 1, strategy
    scenario.check(join())
