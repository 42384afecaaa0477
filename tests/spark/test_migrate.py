"""Changing the plan of a query while it runs on Spark: exact by every strategy, told of as it happens."""

import pytest

from midstream import Join, OptionError, PlanError, StreamError
from midstream.storage.crash import crash_hook
from midstream.storage.fsck import check as fsck
from midstream.storage.local import LocalStore
from midstream.testing import Shape, generate
from tests.spark.arena import Arena
from tests.spark.conftest import check, noted_epochs
from tests.spark.victim import Change, Events

pytestmark = pytest.mark.spark

SHAPE = Shape(rows=20, late=0.05, null_keys=0.05, null_times=0.02, duplicates=0.05, keys=12)
ONE_KEY = ("a.k = b.k", "b.k = c.k", "c.k = d.k")
SEVERAL_KEYS = ("a.k = b.k", "b.k2 = c.k2", "c.k = d.k")
LEFT_DEEP, RIGHT_DEEP, BUSHY, FLAT = "((a b) c) d", "a (b (c d))", "(a b) (c d)", "a b c d"
ASKED, BEGUN = 2, 3
"""The epoch in which another plan is asked for, and the one that finds the request."""


def _columns(df):
    return df


def _rows(df):
    """As a frame that computes, which Spark reads itself."""
    return df.where("true")


class Stage:
    """Runs a query over input that is there, and asks for other plans in the middle of it."""

    def __init__(self, spark, feed, runner) -> None:
        self.spark = spark
        self.feed = feed
        self.runner = runner

    def join_of(self, predicates, source):
        """A function that gives the join: its input must be there first."""
        return lambda: self.join(predicates, source)

    def join(self, predicates=ONE_KEY, source=_columns):
        join = Join(self.spark)
        for name in "abcd":
            join = join.stream(name, source(self.feed.df(name)), time="t", lateness="5 seconds")
        return join.on(*predicates).within("9 seconds").select("a.id", "b.id", "c.id", "d.id", "b.k2")

    def add(self, count):
        given = len(self.feed.epochs)
        self.feed.add(*generate(dict.fromkeys("abcd", SHAPE), epochs=given + count, seed=21)[given:])

    def run(self, *changes, join=None, epochs=7, look=None, **options):
        """Run to the end of so many more epochs; ``look`` is called with the query at every crash point."""
        self.add(epochs)
        events = Events("", "", changes)

        def happen(point):
            events(point)
            if look is not None:
                events.started.wait()
                look(events.query, point)

        with crash_hook(happen):
            events.query = self.runner.start((join or self.join)(), partitions=2, **options)
            events.started.set()
            events.query.awaitTermination()
        assert events.changes == []
        return events.query

    def check(self, join=None):
        epochs = noted_epochs(self.feed, self.runner.checkpoint)
        assert _count(epochs) == _count(self.feed.epochs)
        want = check((join or self.join()).query(), epochs, self.runner.results())
        assert want.num_rows > 50
        assert fsck(LocalStore(str(self.runner.checkpoint))).problems == ()


@pytest.fixture
def stage(spark, feed, runner):
    return Stage(spark, feed, runner)


def _count(epochs):
    return sum(table.num_rows for epoch in epochs for table in epoch.values())


def _events(query):
    return [event for progress in query.recentProgress for event in progress["events"]]


@pytest.mark.parametrize(
    ("strategy", "background", "predicates", "old", "new", "source"),
    [
        ("moving_state", "auto", ONE_KEY, LEFT_DEEP, RIGHT_DEEP, _rows),
        ("moving_state", "auto", SEVERAL_KEYS, FLAT, LEFT_DEEP, _columns),
        ("moving_state", "auto", SEVERAL_KEYS, LEFT_DEEP, RIGHT_DEEP, _columns),
        ("parallel_track", "auto", ONE_KEY, BUSHY, LEFT_DEEP, _columns),
        ("parallel_track", "auto", SEVERAL_KEYS, LEFT_DEEP, BUSHY, _rows),
        ("parallel_track", "auto", SEVERAL_KEYS, RIGHT_DEEP, FLAT, _columns),
        ("hybrid", "off", ONE_KEY, FLAT, BUSHY, _columns),
        ("hybrid", "off", SEVERAL_KEYS, BUSHY, RIGHT_DEEP, _columns),
        ("hybrid", "auto", ONE_KEY, LEFT_DEEP, RIGHT_DEEP, _columns),
        ("hybrid", "auto", SEVERAL_KEYS, RIGHT_DEEP, LEFT_DEEP, _rows),
        ("hybrid", "auto", SEVERAL_KEYS, LEFT_DEEP, BUSHY, _columns),
    ],
)
def test_a_query_changes_its_plan_while_it_runs(stage, strategy, background, predicates, old, new, source):
    join = stage.join_of(predicates, source)
    query = stage.run(Change(ASKED, new, strategy, background), join=join, plan=old)
    assert str(query.plan) == new
    assert [p["plan"] for p in query.recentProgress[:BEGUN]] == [old] * BEGUN
    told = [p for p in query.recentProgress if p["migration"]]
    assert told[0]["batchId"] == BEGUN
    assert told[-1]["migration"]["phase"] == "ended"
    assert (len(told) == 1) == (strategy == "moving_state")
    events = [event["type"] for event in _events(query)]
    assert (events[0], events[-1]) == ("migration begins", "migration ends")
    stage.check(join())


def test_progress_and_explain_tell_of_both_plans_until_the_migration_ends(stage):
    texts = {}

    def look(query, point):
        if point == "before the step":
            texts[query._driver.manifest.epoch] = (str(query.plan), query.explanation())

    query = stage.run(Change(ASKED, RIGHT_DEEP, "hybrid", "off"), look=look, plan=LEFT_DEEP)
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
        ("migration begins", LEFT_DEEP, RIGHT_DEEP)
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
    assert [event["type"] for event in ended["events"]] == ["migration ends"]
    assert set(query.lastProgress["work"]["byPlan"]) == {"both"}
    assert query.lastProgress["migration"] is None
    assert f"Plan: {RIGHT_DEEP}" in query.explanation()
    assert "Migration" not in query.explanation()
    stage.check()


def test_background_work_is_told_of_piece_by_piece(stage):
    query = stage.run(Change(ASKED, RIGHT_DEEP, "hybrid"), plan=LEFT_DEEP)
    phases = [p["migration"]["phase"] for p in query.recentProgress if p["migration"]]
    assert phases[:2] == ["both plans", "computing {c,d}"]
    assert phases[-1] == "ended"
    stage.check()


def test_parallel_track_keeps_results_back_until_it_ends(stage):
    query = stage.run(Change(ASKED, RIGHT_DEEP, "parallel_track"), plan=LEFT_DEEP)
    results = [p["numOutputRows"] for p in query.recentProgress]
    (ended,) = (p["batchId"] for p in query.recentProgress if "migration ends" in str(p["events"]))
    assert ended > BEGUN + 1
    assert results[ended] > max(results[BEGUN:ended])
    stage.check()


def test_the_options_say_how_if_the_call_does_not(stage):
    def look(query, point):
        if point == "before the step" and query._driver.manifest.epoch + 1 == ASKED:
            query.migrate(BUSHY)

    query = stage.run(look=look, plan=LEFT_DEEP, strategy="moving_state", epochs=5)
    (migration,) = (p["migration"] for p in query.recentProgress if p["migration"])
    assert (migration["strategy"], migration["phase"]) == ("moving_state", "ended")
    assert str(query.plan) == BUSHY
    stage.check()


def test_of_several_requests_the_last_counts_and_none_begins_before_a_migration_has_ended(stage, runner):
    query = stage.run(
        Change(ASKED, BUSHY, "moving_state"),
        Change(ASKED, RIGHT_DEEP, "hybrid", "off"),
        Change(BEGUN, BUSHY, "moving_state"),
        Change(BEGUN, FLAT, "moving_state"),
        Change(7, FLAT, "moving_state"),
        epochs=9,
        plan=LEFT_DEEP,
    )
    begun = [(e["migration"], e["to"]) for e in _events(query) if e["type"] == "migration begins"]
    assert begun == [(1, RIGHT_DEEP), (2, FLAT)]
    # The request for the plan that runs was there, and did nothing; it goes with the next epoch.
    assert [path.name for path in (runner.checkpoint / "requests").iterdir()] in ([], ["000005"])
    stage.check()


def test_a_request_that_is_wrong_is_refused_and_the_query_runs_on(stage, runner):
    stage.add(2)
    writer = stage.join().writeStream.format("parquet").option("path", runner.out).option("plan", LEFT_DEEP)
    writer = writer.option("checkpointLocation", runner.checkpoint).option("partitions", 2)
    writer = writer.option("adapt", "off")
    query = writer.trigger(processingTime="0 seconds").start()
    try:
        query.processAllAvailable()
        with pytest.raises(PlanError, match="must have every stream exactly once; got 'a b c': d is missing"):
            query.migrate("a b c")
        with pytest.raises(PlanError, match="parentheses must match"):
            query.migrate("(a b) (c d")
        with pytest.raises(OptionError, match=r"strategy must be one of .*; got 'sideways'"):
            query.migrate(RIGHT_DEEP, "sideways")
        with pytest.raises(OptionError, match="background must be one of auto, off; got 'later'"):
            query.migrate(RIGHT_DEEP, background="later")
        stage.add(1)
        query.processAllAvailable()
        assert str(query.plan) == LEFT_DEEP
        assert query.lastProgress["migration"] is None
        # And one that is right is still heeded.
        query.migrate(RIGHT_DEEP, "moving_state")
        stage.add(2)
        query.processAllAvailable()
        assert str(query.plan) == RIGHT_DEEP
        assert query.exception() is None
    finally:
        query.stop()
    with pytest.raises(StreamError, match="must be running to change its plan; got one that has ended"):
        query.migrate(LEFT_DEEP)
    stage.check()


@pytest.mark.parametrize(("strategy", "background"), [("parallel_track", None), ("hybrid", "off")])
def test_a_strategy_that_would_wait_for_ever_is_refused(spark, feed, runner, strategy, background):
    feed.add(*generate(dict.fromkeys("abc", Shape(rows=10)), epochs=2, seed=3))
    join = Join(spark)
    for name in "abc":
        join = join.stream(name, feed.df(name), time="t", lateness="5 seconds")
    join = join.on("a.k = b.k", "b.k = c.k").within("9 seconds", "a", "b")
    query = runner.start(join)
    with pytest.raises(OptionError, match=r"a window to wait for.*; got no window between a and c"):
        query.migrate("a (b c)", strategy, background=background)
    query.awaitTermination()
    assert check(join.query(), feed.epochs, runner.results()).num_rows > 0


@pytest.mark.parametrize("strategy", ["moving_state", "parallel_track", "hybrid"])
def test_a_migration_goes_on_after_the_query_was_stopped(stage, strategy):
    join = stage.join_of(SEVERAL_KEYS, _columns)
    # The request is made in the last epoch of the first run, and found by the second.
    query = stage.run(Change(1, RIGHT_DEEP, strategy), join=join, epochs=2, plan=LEFT_DEEP)
    assert str(query.plan) == LEFT_DEEP
    phases = []
    for count in (1, 1, 3):
        query = stage.run(join=join, epochs=count)
        phases += [p["migration"] and p["migration"]["phase"] for p in query.recentProgress]
    assert phases[0] == ("ended" if strategy == "moving_state" else "both plans")
    assert phases.count("ended") == 1
    assert str(query.plan) == RIGHT_DEEP
    stage.check(join())


@pytest.mark.slow
@pytest.mark.cluster
def test_a_query_changes_its_plan_on_several_executors(tmp_path):
    arena = Arena(tmp_path, epochs=12, seed=8)
    changes = [
        Change(1, "a (b c)", "moving_state"),
        Change(3, "(a b) c", "parallel_track"),
        Change(7, "a (b c)", "hybrid"),
    ]
    arena.finish(arena.start(changes=changes, master="local-cluster[2,1,1024]"))
    assert "DONE 2" in (tmp_path / "log").read_text()
    arena.check()
    manifest = arena.manifest()
    assert (manifest.plan, manifest.migration, manifest.migrations) == ("a (b c)", None, 3)
