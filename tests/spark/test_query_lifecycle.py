"""The life of a query: it stops and goes on, and has one driver at a time."""

import json
import shutil
import traceback

import pyarrow as pa
import pytest
from pyspark.sql.streaming.query import StreamingQuery

from midstream import CheckpointError
from midstream.testing import Shape, generate
from tests.spark.runner import Runner, check, one_key

pytestmark = pytest.mark.spark

SHAPE = Shape(rows=30, late=0.1, null_times=0.05, null_keys=0.05)


def test_a_stopped_query_goes_on_where_it_was(spark, feed, runner):
    epochs = generate(dict.fromkeys("abc", SHAPE), epochs=6, seed=2)
    feed.add(*epochs[:2])
    first = runner.run(one_key(spark, feed), plan="(a b) c", partitions=3)
    feed.add(*epochs[2:4])
    second = runner.run(one_key(spark, feed))
    assert str(second.plan) == "(a b) c"
    assert second.id == first.id
    assert [p["batchId"] for p in second.recentProgress] == [2, 3]
    feed.add(*epochs[4:])
    runner.run(one_key(spark, feed), partitions=3)
    assert check(one_key(spark, feed).query(), epochs, runner.results()).num_rows > 0


def test_progress_names_the_query_though_epochs_end_before_its_start_returns(
    spark, feed, runner, monkeypatch
):
    from midstream.spark import start_query

    def start_and_wait(*arguments):
        running = start(*arguments)
        running.awaitTermination()
        return running

    start = start_query._start_spark
    monkeypatch.setattr(start_query, "_start_spark", start_and_wait)
    feed.add(*generate(dict.fromkeys("ab", SHAPE), epochs=2, seed=19))
    writer = one_key(spark, feed, "ab").writeStream.format("parquet").queryName("pairs")
    writer = writer.option("checkpointLocation", runner.checkpoint).trigger(availableNow=True)
    query = writer.start(str(runner.out))
    identity = {"id": query.id, "runId": query.runId, "name": "pairs"}
    assert [{name: p.get(name) for name in identity} for p in query.recentProgress] == [identity] * 2


def test_an_epoch_that_spark_forgot_is_not_done_twice(spark, feed, runner):
    epochs = generate(dict.fromkeys("abc", SHAPE), epochs=4, seed=3)
    feed.add(*epochs[:3])
    runner.run(one_key(spark, feed))
    # As after a crash between our commit and Spark's own.
    (runner.checkpoint / "spark" / "commits" / "2").unlink()
    (runner.checkpoint / "spark" / "commits" / ".2.crc").unlink(missing_ok=True)
    feed.add(*epochs[3:])
    query = runner.run(one_key(spark, feed))
    assert [p["batchId"] for p in query.recentProgress] == [3]
    check(one_key(spark, feed).query(), epochs, runner.results())


@pytest.mark.parametrize("lost", ["all", "one"])
def test_the_two_halves_of_a_checkpoint_belong_together(spark, feed, runner, lost):
    epochs = generate(dict.fromkeys("ab", SHAPE), epochs=3, seed=18)
    feed.add(*epochs[: 1 if lost == "one" else 2])
    runner.run(one_key(spark, feed, "ab"))
    shutil.rmtree(runner.checkpoint / "spark")
    feed.add(epochs[2])
    with pytest.raises(CheckpointError, match=r"'spark' of a checkpoint must be the one"):
        runner.run(one_key(spark, feed, "ab"))


def test_results_that_were_committed_but_not_published_appear_on_restart(spark, feed, runner, monkeypatch):
    from midstream.storage.output_table import OutputTable

    feed.add(*generate(dict.fromkeys("abc", SHAPE), epochs=3, seed=4))
    publish = OutputTable.publish

    def crash(self, outputs, **named):
        if any("-0000000001-" in output.published for output in outputs):
            raise OSError("the driver dies here")
        publish(self, outputs, **named)

    monkeypatch.setattr(OutputTable, "publish", crash)
    with pytest.raises(Exception, match="the driver dies here"):
        runner.run(one_key(spark, feed))
    monkeypatch.undo()
    runner.run(one_key(spark, feed))
    assert check(one_key(spark, feed).query(), feed.epochs, runner.results()).num_rows > 0


def test_manifests_are_plain_json(spark, feed, runner):
    feed.add(*generate(dict.fromkeys("ab", SHAPE), epochs=2, seed=11))
    runner.run(one_key(spark, feed, "ab"))
    newest = sorted((runner.checkpoint / "manifests").iterdir())[-1]
    manifest = json.loads(newest.read_text())["manifest"]
    assert manifest["epoch"] == 1
    assert manifest["plan"] == "a b"
    for slice_ in manifest["slices"]:
        with pa.memory_map(str(runner.checkpoint / "slices" / slice_["name"])) as file:
            assert pa.ipc.open_file(file).read_all().num_rows == slice_["rows"]


def test_results_may_be_moved_away_and_the_path_may_change(spark, feed, tmp_path):
    epochs = generate(dict.fromkeys("ab", SHAPE), epochs=2, seed=14)
    feed.add(epochs[0])
    first, second = Runner(tmp_path), Runner(tmp_path)
    second.out = tmp_path / "elsewhere"
    first.run(one_key(spark, feed, "ab"))
    kept = first.results()
    for path in first.out.glob("*.parquet"):
        path.unlink()
    feed.add(epochs[1])
    second.run(one_key(spark, feed, "ab"))
    check(one_key(spark, feed, "ab").query(), epochs, pa.concat_tables([kept, second.results()]))


def test_an_error_in_a_task_reaches_the_user_as_what_it_is(spark, feed, runner):
    epochs = generate(dict.fromkeys("ab", SHAPE), epochs=2, seed=16)
    feed.add(epochs[0])
    runner.run(one_key(spark, feed, "ab"))
    for path in (runner.checkpoint / "slices").iterdir():
        path.unlink()
    feed.add(epochs[1])
    query = runner.start(one_key(spark, feed, "ab"))
    with pytest.raises(CheckpointError, match=r"must be there; got no slices/\d{12}-[0-9a-f]{64}\.arrow"):
        query.awaitTermination()
    error = query.exception()
    assert isinstance(error, CheckpointError)
    # Neither the user nor Spark's log gets the calls within Midstream, nor Spark the causes.
    assert len(traceback.format_exception(error)) < 8
    text = StreamingQuery.exception(query)
    assert str(error) in str(text)
    assert "stage_task" not in str(text)
    assert "direct cause" not in str(text)


def test_a_second_driver_is_refused_before_it_does_anything(spark, feed, runner):
    feed.add(*generate(dict.fromkeys("ab", SHAPE), epochs=2, seed=17))
    writer = one_key(spark, feed, "ab").writeStream.format("parquet").option("path", runner.out)
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
    check(one_key(spark, feed, "ab").query(), feed.epochs, runner.results())
