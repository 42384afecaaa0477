"""Requests for another plan: which of them counts, how it is carried out, and which are refused."""

import pytest

from midstream import Join, OptionError, PlanError, StreamError
from midstream.testing import Shape, generate
from tests.spark.driver_course import Change
from tests.spark.migration_scenario import ASKED, BEGUN, BUSHY, FLAT, LEFT_DEEP, RIGHT_DEEP, events_of
from tests.spark.runner import check

pytestmark = pytest.mark.spark


def test_the_options_say_how_if_the_call_does_not(scenario):
    def look(query, point):
        if point == "before the step" and query._handler.manifest.epoch + 1 == ASKED:
            query.migrate(BUSHY)

    query = scenario.run(look=look, plan=LEFT_DEEP, strategy="moving_state", epochs=5)
    (migration,) = (p["migration"] for p in query.recentProgress if p["migration"])
    assert (migration["strategy"], migration["phase"]) == ("moving_state", "ended")
    assert str(query.plan) == BUSHY
    scenario.check()


def test_of_several_requests_the_last_counts_and_none_begins_before_a_migration_has_ended(scenario, runner):
    query = scenario.run(
        Change(ASKED, BUSHY, "moving_state"),
        Change(ASKED, RIGHT_DEEP, "hybrid", "off"),
        Change(BEGUN, BUSHY, "moving_state"),
        Change(BEGUN, FLAT, "moving_state"),
        Change(7, FLAT, "moving_state"),
        epochs=9,
        plan=LEFT_DEEP,
    )
    begun = [(e["migration"], e["to"]) for e in events_of(query) if e["type"] == "migration-started"]
    assert begun == [(1, RIGHT_DEEP), (2, FLAT)]
    # The request for the plan that runs was there, and did nothing; it goes with the next epoch.
    assert [path.name for path in (runner.checkpoint / "requests").iterdir()] in ([], ["000005"])
    scenario.check()


def test_a_request_that_is_wrong_is_refused_and_the_query_runs_on(scenario, runner):
    scenario.add(2)
    writer = (
        scenario.join().writeStream.format("parquet").option("path", runner.out).option("plan", LEFT_DEEP)
    )
    writer = writer.option("checkpointLocation", runner.checkpoint).option("partitions", 2)
    writer = writer.option("adapt", "off")
    query = writer.trigger(processingTime="0 seconds").start()
    try:
        query.processAllAvailable()
        with pytest.raises(PlanError, match="must have every stream exactly once; got 'a b c': d is missing"):
            query.migrate("a b c")
        with pytest.raises(PlanError, match="parentheses must match"):
            query.migrate("(a b) (c d")
        with pytest.raises(OptionError, match=r"got 'sideways'. Hint: query.migrate also takes generalized_"):
            query.migrate(RIGHT_DEEP, "sideways")
        with pytest.raises(OptionError, match="background must be one of auto, off; got 'later'"):
            query.migrate(RIGHT_DEEP, background="later")
        scenario.add(1)
        query.processAllAvailable()
        assert str(query.plan) == LEFT_DEEP
        assert query.lastProgress["migration"] is None
        # And a valid one is still applied.
        query.migrate(RIGHT_DEEP, "moving_state")
        scenario.add(2)
        query.processAllAvailable()
        assert str(query.plan) == RIGHT_DEEP
        assert query.exception() is None
    finally:
        query.stop()
    with pytest.raises(StreamError, match="must be running to change its plan; got one that has ended"):
        query.migrate(LEFT_DEEP)
    scenario.check()


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
