"""Listeners: those of a join, and those that a user has registered with the session."""

import json
import logging
import threading
import time

import pytest
from pyspark.sql.streaming.listener import (
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
    StreamingQueryProgress,
)

from midstream import Join, OptionError
from midstream.protocol.event import Event
from midstream.protocol.events import MigrationEnded, MigrationStarted
from midstream.protocol.progress import EpochProgress
from midstream.testing import Shape, generate
from tests.spark.runner import Runner, one_key

pytestmark = pytest.mark.spark

SHAPE = Shape(rows=20, late=0.1)


class SessionListener(StreamingQueryListener):
    """Notes what Spark tells listeners of the session."""

    def __init__(self) -> None:
        self.started: list[QueryStartedEvent] = []
        self.progress: list[StreamingQueryProgress] = []
        self.terminated: list[QueryTerminatedEvent] = []
        self.ended = threading.Event()

    def onQueryStarted(self, event):  # noqa: N802  # Spark's name
        self.started.append(event)

    def onQueryProgress(self, event):  # noqa: N802  # Spark's name
        self.progress.append(event.progress)

    def onQueryTerminated(self, event):  # noqa: N802  # Spark's name
        self.terminated.append(event)
        self.ended.set()


@pytest.fixture
def session_listener(spark):
    listener = SessionListener()
    spark.streams.addListener(listener)
    yield listener
    spark.streams.removeListener(listener)


def test_listeners_hear_of_every_epoch_and_may_fail_migrate_and_go(spark, feed, runner, caplog):
    feed.add(*generate(dict.fromkeys("abc", SHAPE), epochs=5, seed=6))
    heard: list[Event | EpochProgress] = []
    brief: list[Event | EpochProgress] = []
    threads = set()
    subscribed = threading.Event()

    def wait_for_listeners(df, batch_id):
        assert subscribed.wait(60)

    query = (
        one_key(spark, feed)
        .writeStream.foreachBatch(wait_for_listeners)
        .queryName("watched")
        .option("checkpointLocation", runner.checkpoint)
        .options(plan="(a b) c", adapt="off")
        .trigger(availableNow=True)
        .start()
    )

    def listen(event):
        heard.append(event)
        threads.add(threading.current_thread())
        if isinstance(event, EpochProgress) and event.batch_id == 1:
            query.migrate("a (b c)", "moving_state")

    def broken(event):
        raise ValueError(f"in batch {event.batch_id}")

    def once(event):
        brief.append(event)
        query.removeListener(once)

    with caplog.at_level(logging.INFO, logger="midstream"):
        for listener in (broken, listen, once):
            query.addListener(listener)
        with pytest.raises(OptionError, match=r"a function of one argument; got a value of type SessionL"):
            query.addListener(SessionListener())  # type: ignore[arg-type]  # what a user may try
        subscribed.set()
        query.awaitTermination()
    assert query.exception() is None
    progress = [event for event in heard if isinstance(event, EpochProgress)]
    assert [p.batch_id for p in progress] == [0, 1, 2, 3, 4]
    assert [p.to_dict() for p in progress] == query.recentProgress
    assert query.lastProgress == query.recentProgress[-1]
    # The first epoch, too, knows the ids that the handle has.
    assert {(p.query.id, p.query.run_id, p.query.name) for p in progress} == {
        (query.id, query.runId, "watched")
    }
    assert [type(e) for e in heard if e.batch_id == 2] == [MigrationStarted, MigrationEnded, EpochProgress]
    assert brief == heard[:1]
    assert threading.main_thread() not in threads
    errors = [r for r in caplog.records if r.levelno == logging.ERROR and r.name == "midstream"]
    assert ["broken failed; the query goes on" in r.getMessage() for r in errors] == [True]
    logged = [r.getMessage() for r in caplog.records if r.name == "midstream" and r not in errors]
    assert logged == [f"watched, batch {e.batch_id}: {e.message}" for e in heard if isinstance(e, Event)]


def test_a_listener_of_the_writer_hears_of_the_first_epoch(spark, feed, runner):
    feed.add(*generate(dict.fromkeys("ab", SHAPE), epochs=2, seed=6))
    heard: list[Event | EpochProgress] = []
    writer = one_key(spark, feed, "ab").writeStream.format("parquet").option("path", runner.out)
    with pytest.raises(OptionError, match=r"a function of one argument; got a value of type SessionL"):
        writer.addListener(SessionListener())  # type: ignore[arg-type]  # what a user may try
    writer = writer.option("checkpointLocation", runner.checkpoint).trigger(availableNow=True)
    query = writer.addListener(heard.append).start()
    query.awaitTermination()
    assert [e.to_dict() for e in heard if isinstance(e, EpochProgress)] == query.recentProgress
    assert [p["batchId"] for p in query.recentProgress] == [0, 1]
    query.removeListener(heard.append)


def test_listeners_of_the_session_hear_of_a_join_as_of_any_query(spark, feed, tmp_path, session_listener):
    """What docs/guide.md says that they see: ids and batches, but not all figures."""
    feed.add(*generate(dict.fromkeys("ab", SHAPE), epochs=2, seed=6))
    columnar = Runner(tmp_path / "columnar").run(one_key(spark, feed, "ab"))
    computed = Join(spark)
    for name in "ab":
        computed = computed.stream(name, feed.df(name).where("true"), time="t", lateness="5 seconds")
    rows = Runner(tmp_path / "rows").run(computed.on("a.k = b.k").within("15 seconds"))
    _wait(lambda: len(session_listener.terminated) == 2)
    assert [(str(e.id), str(e.runId), e.name) for e in session_listener.started] == [
        (q.id, q.runId, q.name) for q in (columnar, rows)
    ]
    assert [(str(e.runId), e.exception) for e in session_listener.terminated] == [
        (q.runId, None) for q in (columnar, rows)
    ]
    for query in (columnar, rows):
        seen = [json.loads(p.json) for p in session_listener.progress if str(p.runId) == query.runId]
        ours = query.recentProgress
        assert [p["batchId"] for p in seen] == [p["batchId"] for p in ours] == [0, 1]
        assert [len(p["sources"]) for p in seen] == [2, 2]
        # Spark knows of all rows, whoever reads them, and of no results of a foreachBatch sink.
        assert [p["numInputRows"] for p in seen] == [p["numInputRows"] for p in ours] == [40, 40]
        assert {p["sink"]["numOutputRows"] for p in seen} == {-1}
        assert [p["stateOperators"] for p in seen] == [[], []]


def test_listeners_of_the_session_hear_why_a_join_has_ended(spark, feed, runner, session_listener):
    feed.add(*generate(dict.fromkeys("ab", SHAPE), epochs=1, seed=6))

    def fail(df, batch_id):
        raise ValueError("of the sink")

    writer = one_key(spark, feed, "ab").writeStream.foreachBatch(fail)
    query = writer.option("checkpointLocation", runner.checkpoint).trigger(availableNow=True).start()
    with pytest.raises(Exception, match="of the sink"):
        query.awaitTermination()
    assert session_listener.ended.wait(30)
    (ended,) = session_listener.terminated
    assert str(ended.runId) == query.runId
    assert "ValueError: of the sink" in ended.exception
    assert query.recentProgress == []


def test_a_join_explains_itself_as_text(spark, feed, capsys):
    feed.add(*generate(dict.fromkeys("abc", SHAPE), epochs=1, seed=6))
    join = one_key(spark, feed)
    assert join.explanation().startswith("Plan: (a b) c\n")
    assert join.explanation("a (b c)").startswith("Plan: a (b c)\n")
    join.explain("a (b c)")
    assert capsys.readouterr().out == f"{join.explanation('a (b c)')}\n"


def _wait(done):
    """Listeners of the session are called by another thread, some time after."""
    for _ in range(300):
        if done():
            return
        time.sleep(0.1)
    raise AssertionError("a listener of the session was not called")
