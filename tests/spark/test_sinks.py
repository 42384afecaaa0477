"""What readers see: whole files, committed rows, no column added, and the same rows through every sink."""

from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

from midstream import Join, OptionError
from midstream.testing import Shape, assert_same_rows, generate
from tests.spark.runner import check

pytestmark = pytest.mark.spark


@pytest.fixture
def join(spark, feed):
    feed.add(*generate(dict.fromkeys("ab", Shape(rows=30)), epochs=3, seed=1))
    pair = Join(spark)
    for name in "ab":
        pair = pair.stream(name, feed.df(name), time="t", lateness="5 seconds")
    return pair.on("a.k = b.k").within("10 seconds").select("a.id", "b.v AS value")


def _staged(folder: Path) -> list[str]:
    """The files that are staged; beside them is the id of their folder."""
    return sorted(path.name for path in (folder / "_staged").iterdir() if path.name != "folder-id")


def test_plain_readers_see_the_results_and_nothing_else(spark, feed, join, runner):
    runner.run(join)
    by_spark = spark.read.parquet(str(runner.out))
    assert by_spark.columns == ["a_id", "value"]
    by_duckdb = duckdb.read_parquet(f"{runner.out}/**/*.parquet").to_arrow_table()
    check(join.query(), feed.epochs, by_spark.toArrow())
    assert_same_rows(by_duckdb, by_spark.toArrow())
    assert [p.name for p in runner.out.iterdir() if not p.name.endswith(".parquet")] == ["_staged"]
    assert _staged(runner.out) == []


def test_a_query_without_results_leaves_a_readable_table(spark, feed, join, runner):
    runner.run(join.on("a.v > b.v + 1000"))
    assert spark.read.parquet(str(runner.out)).count() == 0


def test_staged_files_are_invisible_to_readers(spark, join, runner, monkeypatch):
    from midstream.storage.output_table import OutputTable

    seen: list[list[object]] = []

    def look_then_publish(self, outputs, **named):
        if outputs and not seen:
            assert _staged(runner.out) == sorted(output.staged for output in outputs)
            seen.append(list(runner.out.rglob("*.parquet")))
        publish(self, outputs, **named)

    publish = OutputTable.publish
    monkeypatch.setattr(OutputTable, "publish", look_then_publish)
    runner.run(join)
    assert seen == [[]]


def test_foreach_batch_gets_each_batch_with_its_id(feed, join, tmp_path):
    batches: dict[int, pa.Table] = {}
    query = (
        join.writeStream.foreachBatch(lambda df, batch: batches.update({batch: df.toArrow()}))
        .option("checkpointLocation", tmp_path / "checkpoint")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    assert sorted(batches) == [0, 1, 2]
    check(join.query(), feed.epochs, pa.concat_tables(batches.values()))


def test_an_error_of_the_users_function_ends_the_query_before_the_commit(feed, join, tmp_path):
    def fail(df, batch):
        if batch == 1 and not done:
            done.append(batch)
            raise RuntimeError("the user's own mistake")
        batches[batch] = df.toArrow()

    done: list[int] = []
    batches: dict[int, pa.Table] = {}
    writer = join.writeStream.foreachBatch(fail).option("checkpointLocation", tmp_path / "checkpoint")
    query = writer.trigger(availableNow=True).start()
    with pytest.raises(Exception, match="the user's own mistake"):
        query.awaitTermination()
    assert query.exception() is not None
    assert query.lastProgress["batchId"] == 0
    writer.start().awaitTermination()
    assert sorted(batches) == [0, 1, 2]
    check(join.query(), feed.epochs, pa.concat_tables(batches.values()))


def test_memory_is_a_view_of_all_results(spark, feed, join):
    query = join.writeStream.format("memory").queryName("pairs").trigger(availableNow=True).start()
    assert spark.table("pairs").columns == ["a_id", "value"]
    query.awaitTermination()
    check(join.query(), feed.epochs, spark.table("pairs").toArrow())


def test_the_name_of_a_running_query_is_not_taken_from_it(spark, feed, join):
    """The view of its results would be emptied."""
    query = join.writeStream.format("memory").queryName("taken").start()
    query.processAllAvailable()
    results = spark.table("taken").count()
    for writer in (join.writeStream.format("memory"), join.writeStream.format("console")):
        with pytest.raises(OptionError, match=r"of no other that runs; got 'taken'. Hint: stop that"):
            writer.queryName("taken").start()
    assert spark.table("taken").count() == results > 0
    query.stop()
    again = join.writeStream.format("memory").queryName("taken").trigger(availableNow=True).start()
    again.awaitTermination()
    assert spark.table("taken").count() == results


def test_results_in_memory_survive_a_switch_of_sink(spark, feed, join, tmp_path, monkeypatch):
    monkeypatch.setattr("midstream.spark.sinks.EPOCHS_KEPT", 1)

    def writer():
        options = {"checkpointLocation": tmp_path / "checkpoint"}
        return join.writeStream.options(**options).trigger(availableNow=True)

    writer().format("memory").queryName("pairs").start().awaitTermination()
    before = spark.table("pairs").toArrow()
    feed.add(*generate(dict.fromkeys("ab", Shape(rows=30)), epochs=6, seed=1)[3:])
    batches: dict[int, pa.Table] = {}
    save = writer().foreachBatch(lambda df, batch: batches.update({batch: df.toArrow()}))
    save.start().awaitTermination()
    assert sorted(batches) == [3, 4, 5]
    # What it has staged itself goes when it is old enough.
    staged = _staged(tmp_path / "checkpoint" / "results")
    assert {name.split("-")[2] for name in staged} == {"0000000004", "0000000005"}
    writer().format("memory").queryName("pairs").start().awaitTermination()
    assert_same_rows(spark.table("pairs").toArrow(), before)
    check(join.query(), feed.epochs, pa.concat_tables([before, *batches.values()]))


def test_console_prints_each_batch(join, capfd):
    query = join.writeStream.format("console").option("numRows", 2).trigger(availableNow=True).start()
    query.awaitTermination()
    printed = capfd.readouterr().out
    assert "Batch: 0" in printed
    assert "Batch: 2" in printed
    assert "only showing top 2 rows" in printed
