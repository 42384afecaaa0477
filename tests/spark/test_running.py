"""A query at work: late and idle streams, any source, several at a time, and what it tells of itself."""

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from midstream import Join, OptionError, StreamError
from midstream.testing import Shape, generate
from tests.spark.migration_scenario import events_of
from tests.spark.runner import Runner, check, one_key

pytestmark = pytest.mark.spark

SHAPE = Shape(rows=30, late=0.1, null_times=0.05, null_keys=0.05)


def test_two_queries_run_side_by_side(spark, feed, tmp_path):
    feed.add(*generate(dict.fromkeys("abc", SHAPE), epochs=3, seed=6))
    runners = [Runner(tmp_path / "one"), Runner(tmp_path / "two")]
    joins = [one_key(spark, feed, "abc"), one_key(spark, feed, "ab")]
    queries = [runner.start(join) for runner, join in zip(runners, joins, strict=True)]
    for query, runner, join in zip(queries, runners, joins, strict=True):
        query.awaitTermination()
        epochs = [{name: epoch[name] for name in join.query().names} for epoch in feed.epochs]
        check(join.query(), epochs, runner.results())


def test_late_rows_are_counted_and_kept(spark, feed, runner, tmp_path):
    feed.add(*generate(dict.fromkeys("ab", SHAPE), epochs=4, seed=7))
    join = one_key(spark, feed, "ab").select("a.id")
    query = runner.run(join, lateRows=tmp_path / "late", lateShareWarning=0.9)
    assert query.lastProgress["problems"] == [], "more than the default share, but that many are expected"
    late = spark.read.parquet(str(tmp_path / "late"))
    assert late.columns == ["stream", "reason", "time", "batchId", "row"]
    rows = late.collect()
    counted = sum(p["numLateRows"] for p in query.recentProgress)
    assert len(rows) == counted > 0
    assert {row.reason for row in rows} == {"late", "null time"}
    originals = {
        (name, row["id"]): row for epoch in feed.epochs for name, t in epoch.items() for row in t.to_pylist()
    }
    for row in rows:
        kept = json.loads(row.row)
        original = originals[row.stream, kept["id"]]
        assert set(kept) == set(original)
        assert kept["v"] == original["v"]
        assert (original["t"] is None) == (row.reason == "null time")
    check(join.query(), feed.epochs, runner.results())


def test_late_rows_of_every_stage_are_kept(spark, feed, runner, tmp_path):
    feed.add(*generate(dict.fromkeys("abc", Shape(rows=20, late=0.3)), epochs=3, seed=13))
    join = Join(spark)
    for name in "abc":
        join = join.stream(name, feed.df(name), time="t", lateness="5 seconds")
    join = join.on("a.k = b.k", "b.k2 = c.k2").within("15 seconds")
    with pytest.raises(OptionError, match="another folder than path"):
        runner.start(join, lateRows=runner.out)
    query = runner.run(join, lateRows=tmp_path / "late", partitions=1)
    late = spark.read.parquet(str(tmp_path / "late"))
    counted = sum(p["numLateRows"] for p in query.recentProgress)
    assert late.count() == counted > 0
    assert {row.stream for row in late.select("stream").distinct().collect()} == {"a", "b", "c"}


def test_an_idle_stream_lets_state_expire(spark, feed, tmp_path):
    shapes = {"a": Shape(rows=30), "b": Shape(rows=30), "c": Shape(rows=30, silent=frozenset(range(1, 8)))}
    feed.add(*generate(shapes, epochs=8, seed=8))
    waiting, going_on = Runner(tmp_path / "waiting"), Runner(tmp_path / "going_on")
    first = waiting.run(one_key(spark, feed))
    held = first.lastProgress
    assert ("stream-stalled", "c") in [(e["type"], e["stream"]) for e in events_of(first)]
    query = going_on.run(one_key(spark, feed), idleTimeout="20 seconds")
    freed = query.lastProgress
    assert freed["sources"]["c"]["idle"]
    assert ("stream-idle", "c") in [(e["type"], e["stream"]) for e in events_of(query)]
    assert held["sources"]["c"]["idle"] is False
    assert freed["state"]["{a}"]["rows"] < held["state"]["{a}"]["rows"]
    check(one_key(spark, feed).query(), feed.epochs, waiting.results())
    check(one_key(spark, feed).query(), feed.epochs, going_on.results(), idle_timeout=20_000_000)


def test_progress_and_explain_say_what_happened(spark, feed, runner, capsys):
    feed.add(*generate(dict.fromkeys("abc", SHAPE), epochs=3, seed=9))
    query = runner.start(one_key(spark, feed))
    query.processAllAvailable()
    query.awaitTermination()
    assert not query.isActive
    assert query.exception() is None
    progress = query.lastProgress
    assert json.loads(json.dumps(progress)) == progress
    fields = (
        "batchId plan numInputRows numOutputRows numLateRows durationMs watermark state stateBytesActive "
        "stateBytesSpilled work migration events id runId name timestamp"
    )
    assert set(fields.split()) <= set(progress)
    assert progress["numInputRows"] == sum(t.num_rows for t in feed.epochs[-1].values())
    assert set(progress["state"]) == {"{a}", "{b}", "{c}", "{a,b}"}
    figures = {"probes", "candidates", "intermediateRows", "comparisons"}
    figures |= {"insertedRows", "sentRows", "scannedRows"}
    assert set(progress["work"]) == {*figures, "byPlan"}
    query.explain()
    text = capsys.readouterr().out
    assert "Plan: (a b) c" in text
    assert "k0: a.k = b.k = c.k" in text
    assert "Stages: 1" in text
    assert f"{progress['state']['{a}']['rows']:,} rows" in text
    with pytest.raises(StreamError, match="must be running to change its plan; got one that has ended"):
        query.migrate("a (b c)", strategy="hybrid")


def test_any_streaming_source_will_do(spark, tmp_path):
    rate = spark.readStream.format("rate").option("rowsPerSecond", 50).load()
    batches: list[pa.Table] = []
    query = (
        Join(spark)
        .stream("x", rate, time="timestamp", lateness="1 minute")
        .stream("y", rate, time="timestamp", lateness="1 minute")
        .on("x.value = y.value")
        .within("1 minute")
        .writeStream.foreachBatch(lambda df, _: batches.append(df.toArrow()))
        .trigger(processingTime="500 milliseconds")
        .start()
    )
    try:
        while not query.exception() and sum(map(len, batches)) < 50:
            query.awaitTermination(1)
    finally:
        query.stop()
    assert not query.isActive
    values = pa.concat_tables(batches)
    assert values.column("x_value").to_pylist() == values.column("y_value").to_pylist()
    assert sorted(values.column("x_value").to_pylist()) == list(range(values.num_rows))


def test_workers_run_the_python_of_this_process(spark, feed, runner, monkeypatch):
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    monkeypatch.setattr(spark.sparkContext, "pythonExec", "/nowhere/python3")
    feed.add(*generate(dict.fromkeys("ab", SHAPE), epochs=1, seed=20))
    join = Join(spark)
    for name in "ab":
        # A filter: Spark computes the rows, and tasks encode them with the Python that the stream has.
        join = join.stream(name, feed.df(name).where("true"), time="t", lateness="5 seconds")
    runner.run(join.on("a.k = b.k"))
    check(join.on("a.k = b.k").query(), feed.epochs, runner.results())


def test_results_of_an_epoch_leave_in_order_of_their_time(spark, feed, runner):
    feed.add(*generate(dict.fromkeys("ab", Shape(rows=50)), epochs=3, seed=12))
    runner.run(one_key(spark, feed, "ab"))
    for path in runner.out.glob("*.parquet"):
        table = pq.read_table(path)
        times = [max(pair) for pair in zip(table["a_t"].to_pylist(), table["b_t"].to_pylist(), strict=True)]
        assert times == sorted(times)
