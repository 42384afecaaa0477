"""Stopping a query in the middle of a batch: quietly, at once, and without losing anything."""

import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from pyspark.sql.streaming.listener import StreamingQueryListener
from pyspark.sql.streaming.query import StreamingQuery

from midstream import StreamError
from midstream.testing import Shape, generate
from tests.spark.feed import Feed
from tests.spark.interruptible_main import endless, outcome, start
from tests.spark.runner import Runner, check, join_streams, one_key

pytestmark = pytest.mark.spark

SHAPE = Shape(rows=20)
WARNINGS = r"WARNING: |Using Spark's default|Setting default log level|To adjust|\d\d/\d\d/\d\d \S+ WARN "
DYING_TASK = r"ERROR TaskContextImpl: Error in TaskCompletionListener|Block broadcast_\d+ does not exist"


@pytest.mark.slow
def test_a_ctrl_c_ends_a_query_quietly_and_a_restart_goes_on(spark, tmp_path):
    feed = Feed(spark, tmp_path / "in")
    feed.add(*generate(dict.fromkeys("ab", SHAPE), epochs=2, seed=1))
    program = subprocess.Popen(
        [sys.executable, "-m", "tests.spark.interruptible_main", tmp_path],
        cwd=Path(__file__).parents[2],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert program.stdout is not None
    lines = []
    for line in program.stdout:
        lines.append(line)
        if line == "uncaught:\n":
            time.sleep(0.5)
            os.killpg(program.pid, signal.SIGINT)  # as a terminal does
            begin = time.monotonic()
    _, log = program.communicate(timeout=60)
    assert time.monotonic() - begin < 20
    assert [re.sub(r" [0-4]\.\d$", "", line.strip()) for line in lines] == [
        "sleep: Stopped False None",
        "any: Stopped False None",
        "uncaught:",
    ]
    assert program.returncode in (-signal.SIGINT, 128 + signal.SIGINT)
    # Besides warnings of one line, there is what Python says of an interrupt that nobody catches, and
    # nothing of the query that is running when the program ends.
    said = [line for line in log.splitlines() if not re.match(WARNINGS, line)]
    assert said[0] == "Traceback (most recent call last):", log
    # On a slow machine Spark is still killing the tasks when the process ends, and says so after Python.
    end = said.index("KeyboardInterrupt")
    afterwards = [line for line in said[end + 1 :] if not re.match(r"\tat |\.\.\. \d+ more|$", line)]
    assert all(re.search(DYING_TASK, line) for line in afterwards), log
    said = said[: end + 1]
    assert len([line for line in said if line.startswith("  File") and "runpy" not in line]) == 4, log
    assert len(log[: log.index("KeyboardInterrupt")].splitlines()) < 60
    # Nothing was committed, and nothing keeps another driver from beginning.
    frames = {name: feed.df(name) for name in "ab"}
    join = join_streams(spark, frames)
    join = join.on("a.k = b.k").select("a.id", "b.id")
    runner = Runner(tmp_path)
    begin = time.monotonic()
    query = runner.start(join)
    assert time.monotonic() - begin < 5
    query.awaitTermination()
    assert check(join.query(), feed.epochs, runner.results()).num_rows > 0


def test_stop_gives_up_a_running_batch_at_once(spark, feed, tmp_path):
    feed.add(*generate(dict.fromkeys("ab", SHAPE), epochs=1, seed=5))
    query = start(endless(spark, tmp_path), tmp_path)
    begin = time.monotonic()
    query.stop()
    assert time.monotonic() - begin < 5
    assert (outcome(query), query.lastProgress) == ("Stopped False None", None)
    query.awaitTermination()


class Stopping(StreamingQueryListener):
    """Stops a query after a batch."""

    def __init__(self) -> None:
        self.query: StreamingQuery | None = None
        self.errors: dict[str, str | None] = {}

    def onQueryStarted(self, event):  # noqa: N802  # Spark's name
        pass

    def onQueryProgress(self, event):  # noqa: N802  # Spark's name
        if self.query is not None:
            self.query.stop()

    def onQueryTerminated(self, event):  # noqa: N802  # Spark's name
        self.errors[str(event.runId)] = event.exception


@pytest.fixture
def by_listener(spark):
    listener = Stopping()
    spark.streams.addListener(listener)
    yield listener
    spark.streams.removeListener(listener)


def test_a_query_may_be_stopped_from_wherever_it_calls_the_user(spark, feed, runner, by_listener, caplog):
    feed.add(*generate(dict.fromkeys("ab", SHAPE), epochs=8, seed=2))
    join = one_key(spark, feed, "ab").select("a.id", "b.id")
    writer = join.writeStream.format("parquet").option("path", runner.out)
    writer = writer.option("checkpointLocation", runner.checkpoint).trigger(processingTime="1 second")

    def ends(query: StreamingQuery) -> None:
        assert query.awaitTermination(60)
        assert (query.status["message"], query.isActive, query.exception()) == ("Stopped", False, None)
        assert sorted((runner.checkpoint / "leases").iterdir())[-1].suffix == ".released"

    def wait_then_stop(event: object) -> None:
        for wait in (query.awaitTermination, query.processAllAvailable):
            with pytest.raises(StreamError, match="must not wait for its own query"):
                wait()
        query.stop()

    query = writer.start()
    query.addListener(wait_then_stop)
    ends(query)
    query = writer.start()
    by_listener.query = query
    ends(query)
    by_listener.query = None
    # Spark's own handle of it.
    query = writer.start()
    (found,) = [active for active in spark.streams.active if active.id == query.id]
    assert (found.runId, found.name) == (query.runId, query.name)
    found.stop()
    ends(query)
    runner.run(join)
    check(join.query(), feed.epochs, runner.results())
    assert caplog.records == []
    assert set(by_listener.errors.values()) == {None}


def test_a_function_that_stops_its_query_is_not_called_again_with_its_batch(spark, feed, runner):
    feed.add(*generate(dict.fromkeys("ab", SHAPE), epochs=3, seed=3))
    batches: list[int] = []

    def stop(rows, batch):
        batches.append(batch)
        if batch == 1:
            started.wait(60)
            query.stop()

    started = threading.Event()
    writer = one_key(spark, feed, "ab").writeStream.foreachBatch(stop)
    writer = writer.option("checkpointLocation", runner.checkpoint).trigger(availableNow=True)
    query = writer.start()
    started.set()
    assert query.awaitTermination(60)
    assert query.exception() is None
    writer.start().awaitTermination()
    assert batches == [0, 1, 2]


def test_an_error_of_the_users_function_is_not_lost_though_the_query_is_stopped(spark, feed, runner):
    feed.add(*generate(dict.fromkeys("ab", SHAPE), epochs=1, seed=4))

    def fail(rows, batch):
        running.set()
        while query.isActive:
            time.sleep(0.02)
        raise ValueError("the user's own mistake")

    running = threading.Event()
    writer = one_key(spark, feed, "ab").writeStream.foreachBatch(fail)
    query = writer.option("checkpointLocation", runner.checkpoint).start()
    assert running.wait(60)
    query.stop()
    assert "the user's own mistake" in str(query.exception())
