"""The life of a query: stop and go on, side by side, late and idle streams, progress, clean-up."""

import json
import shutil

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from midstream import CheckpointError, Join, OptionError, StreamError
from midstream.testing import Shape, generate
from tests.spark.conftest import Runner, check

pytestmark = pytest.mark.spark

SHAPE = Shape(rows=30, late=0.1, null_times=0.05, null_keys=0.05)


def _join(spark, feed, names="abc"):
    join = Join(spark)
    for name in names:
        join = join.stream(name, feed.df(name), time="t", lateness="5 seconds")
    return join.on(*(f"a.k = {other}.k" for other in names[1:])).within("15 seconds")


def test_a_stopped_query_goes_on_where_it_was(spark, feed, runner):
    epochs = generate(dict.fromkeys("abc", SHAPE), epochs=6, seed=2)
    feed.add(*epochs[:2])
    first = runner.run(_join(spark, feed), plan="(a b) c", partitions=3)
    feed.add(*epochs[2:4])
    second = runner.run(_join(spark, feed))
    assert str(second.plan) == "(a b) c"
    assert second.id == first.id
    assert [p["batchId"] for p in second.recentProgress] == [2, 3]
    feed.add(*epochs[4:])
    runner.run(_join(spark, feed), partitions=3)
    assert check(_join(spark, feed).query(), epochs, runner.results()).num_rows > 0


def test_an_epoch_that_spark_forgot_is_not_done_twice(spark, feed, runner):
    epochs = generate(dict.fromkeys("abc", SHAPE), epochs=4, seed=3)
    feed.add(*epochs[:3])
    runner.run(_join(spark, feed))
    # As after a crash between our commit and Spark's own.
    (runner.checkpoint / "spark" / "commits" / "2").unlink()
    (runner.checkpoint / "spark" / "commits" / ".2.crc").unlink(missing_ok=True)
    feed.add(*epochs[3:])
    query = runner.run(_join(spark, feed))
    assert [p["batchId"] for p in query.recentProgress] == [3]
    check(_join(spark, feed).query(), epochs, runner.results())


@pytest.mark.parametrize("lost", ["all", "one"])
def test_the_two_halves_of_a_checkpoint_belong_together(spark, feed, runner, lost):
    epochs = generate(dict.fromkeys("ab", SHAPE), epochs=3, seed=18)
    feed.add(*epochs[: 1 if lost == "one" else 2])
    runner.run(_join(spark, feed, "ab"))
    shutil.rmtree(runner.checkpoint / "spark")
    feed.add(epochs[2])
    with pytest.raises(CheckpointError, match=r"'spark' of a checkpoint must be the one"):
        runner.run(_join(spark, feed, "ab"))


def test_results_that_were_committed_but_not_published_appear_on_restart(spark, feed, runner, monkeypatch):
    from midstream.storage.output import OutputTable

    feed.add(*generate(dict.fromkeys("abc", SHAPE), epochs=3, seed=4))
    publish = OutputTable.publish

    def crash(self, outputs):
        outputs = list(outputs)
        if any("-0000000001-" in output.published for output in outputs):
            raise OSError("the driver dies here")
        publish(self, outputs)

    monkeypatch.setattr(OutputTable, "publish", crash)
    with pytest.raises(Exception, match="the driver dies here"):
        runner.run(_join(spark, feed))
    monkeypatch.undo()
    runner.run(_join(spark, feed))
    assert check(_join(spark, feed).query(), feed.epochs, runner.results()).num_rows > 0


def test_two_queries_run_side_by_side(spark, feed, tmp_path):
    feed.add(*generate(dict.fromkeys("abc", SHAPE), epochs=3, seed=6))
    runners = [Runner(tmp_path / "one"), Runner(tmp_path / "two")]
    joins = [_join(spark, feed, "abc"), _join(spark, feed, "ab")]
    queries = [runner.start(join) for runner, join in zip(runners, joins, strict=True)]
    for query, runner, join in zip(queries, runners, joins, strict=True):
        query.awaitTermination()
        epochs = [{name: epoch[name] for name in join.query().names} for epoch in feed.epochs]
        check(join.query(), epochs, runner.results())


def test_late_rows_are_counted_and_kept(spark, feed, runner, tmp_path):
    feed.add(*generate(dict.fromkeys("ab", SHAPE), epochs=4, seed=7))
    join = _join(spark, feed, "ab").select("a.id")
    query = runner.run(join, lateRows=tmp_path / "late")
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


def test_an_idle_stream_lets_state_expire(spark, feed, tmp_path):
    shapes = {"a": Shape(rows=30), "b": Shape(rows=30), "c": Shape(rows=30, silent=frozenset(range(1, 12)))}
    feed.add(*generate(shapes, epochs=12, seed=8))
    waiting, going_on = Runner(tmp_path / "waiting"), Runner(tmp_path / "going_on")
    first = waiting.run(_join(spark, feed))
    held = first.lastProgress
    assert ("waiting", "c") in [(e["type"], e["stream"]) for p in first.recentProgress for e in p["events"]]
    query = going_on.run(_join(spark, feed), idleTimeout="20 seconds")
    freed = query.lastProgress
    assert freed["sources"]["c"]["idle"]
    assert ("idle", "c") in [(e["type"], e["stream"]) for p in query.recentProgress for e in p["events"]]
    assert held["sources"]["c"]["idle"] is False
    assert freed["state"]["{a}"]["rows"] < held["state"]["{a}"]["rows"]
    check(_join(spark, feed).query(), feed.epochs, waiting.results())
    check(_join(spark, feed).query(), feed.epochs, going_on.results(), idle_timeout=20_000_000)


def test_progress_and_explain_say_what_happened(spark, feed, runner, capsys):
    feed.add(*generate(dict.fromkeys("abc", SHAPE), epochs=3, seed=9))
    query = runner.start(_join(spark, feed))
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
    figures = {"probes", "candidates", "intermediateRows", "comparisons", "insertedRows", "sentRows"}
    assert set(progress["work"]) == {*figures, "byPlan"}
    query.explain()
    text = capsys.readouterr().out
    assert "Plan: (a b) c" in text
    assert "k0: a.k = b.k = c.k" in text
    assert "Stages: 1" in text
    assert f"{progress['state']['{a}']['rows']:,} rows" in text
    with pytest.raises(StreamError, match="must be running to change its plan; got one that has ended"):
        query.migrate("a (b c)", strategy="hybrid")


def test_files_that_nobody_needs_are_deleted(spark, feed, runner):
    feed.add(*generate(dict.fromkeys("ab", Shape(rows=10)), epochs=25, seed=10))
    query = runner.run(_join(spark, feed, "ab").within("10 seconds"))
    files = list((runner.checkpoint / "slices").iterdir())
    live = sum(state["slices"] for state in query.lastProgress["state"].values())
    assert live <= 40
    assert len(files) < live + 11 * 8 * 2
    assert len(list((runner.checkpoint / "manifests").iterdir())) == 10
    assert query.lastProgress["state"]["{a}"]["rows"] < 100


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


def test_manifests_are_plain_json(spark, feed, runner):
    feed.add(*generate(dict.fromkeys("ab", SHAPE), epochs=2, seed=11))
    runner.run(_join(spark, feed, "ab"))
    newest = sorted((runner.checkpoint / "manifests").iterdir())[-1]
    manifest = json.loads(newest.read_text())["manifest"]
    assert manifest["epoch"] == 1
    assert manifest["plan"] == "a b"
    for slice_ in manifest["slices"]:
        with pa.memory_map(str(runner.checkpoint / "slices" / slice_["name"])) as file:
            assert pa.ipc.open_file(file).read_all().num_rows == slice_["rows"]


def test_results_of_an_epoch_leave_in_order_of_their_time(spark, feed, runner):
    feed.add(*generate(dict.fromkeys("ab", Shape(rows=50)), epochs=3, seed=12))
    runner.run(_join(spark, feed, "ab"))
    for path in runner.out.glob("*.parquet"):
        table = pq.read_table(path)
        times = [max(pair) for pair in zip(table["a_t"].to_pylist(), table["b_t"].to_pylist(), strict=True)]
        assert times == sorted(times)


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


def test_results_may_be_moved_away_and_the_path_may_change(spark, feed, tmp_path):
    epochs = generate(dict.fromkeys("ab", SHAPE), epochs=2, seed=14)
    feed.add(epochs[0])
    first, second = Runner(tmp_path), Runner(tmp_path)
    second.out = tmp_path / "elsewhere"
    first.run(_join(spark, feed, "ab"))
    kept = first.results()
    for path in first.out.glob("*.parquet"):
        path.unlink()
    feed.add(epochs[1])
    second.run(_join(spark, feed, "ab"))
    check(_join(spark, feed, "ab").query(), epochs, pa.concat_tables([kept, second.results()]))


def test_an_error_in_a_task_reaches_the_user_as_what_it_is(spark, feed, runner):
    epochs = generate(dict.fromkeys("ab", SHAPE), epochs=2, seed=16)
    feed.add(epochs[0])
    runner.run(_join(spark, feed, "ab"))
    for path in (runner.checkpoint / "slices").iterdir():
        path.unlink()
    feed.add(epochs[1])
    query = runner.start(_join(spark, feed, "ab"))
    with pytest.raises(CheckpointError, match=r"must be there; got no slices/[0-9a-f]{64}\.arrow"):
        query.awaitTermination()
    assert isinstance(query.exception(), CheckpointError)


def test_a_second_driver_is_refused_before_it_does_anything(spark, feed, runner):
    feed.add(*generate(dict.fromkeys("ab", SHAPE), epochs=2, seed=17))
    writer = _join(spark, feed, "ab").writeStream.format("parquet").option("path", runner.out)
    writer = writer.option("checkpointLocation", runner.checkpoint).trigger(processingTime="1 second")
    first = writer.start()
    try:
        with pytest.raises(
            CheckpointError, match=r"one driver at a time; got process \d+ .* held by process"
        ):
            writer.start()
        first.processAllAvailable()
    finally:
        first.stop()
    second = writer.start()
    second.processAllAvailable()
    second.stop()
    check(_join(spark, feed, "ab").query(), feed.epochs, runner.results())
