"""The schema of a source drifts while its query is stopped: what goes on, and what is refused untouched."""

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import functions as F  # noqa: N812  # as everybody calls it

from midstream import CheckpointError, Join, QueryError
from midstream.testing import Shape, generate
from tests.helpers import digests
from tests.spark.feed import Feed
from tests.spark.runner import Runner, check

pytestmark = pytest.mark.spark

NAMED = ("a.id", "a.v", "b.id", "b.k")


def _join(spark, feed, frame=None, other=None, select=NAMED):
    join = Join(spark).stream("a", feed.df("a") if frame is None else frame, time="t", lateness="5 seconds")
    join = join.stream("b", feed.df("b") if other is None else other, time="t", lateness="5 seconds")
    return join.on("a.k = b.k").within("15 seconds").select(*select)


@pytest.fixture(scope="module")
def stopped(spark, tmp_path_factory):
    """Two queries that have run and stopped: one names its columns, the other takes all of stream a."""
    root = tmp_path_factory.mktemp("drift")
    feed = Feed(spark, root / "in")
    feed.add(*generate(dict.fromkeys("ab", Shape(rows=20)), epochs=1, seed=31))
    named, everything = Runner(root / "named"), Runner(root / "everything")
    named.run(_join(spark, feed))
    everything.run(_join(spark, feed, _with_struct(feed.df("a")), select=("a.*", "b.id")))
    return feed, named, everything


def _with_struct(frame):
    return frame.withColumn("s", F.struct("v", "k2"))


def test_columns_that_the_query_does_not_use_may_come_go_and_change(spark, feed, runner):
    epochs = generate(dict.fromkeys("ab", Shape(rows=20, late=0.1)), epochs=2, seed=32)
    feed.add(epochs[0])
    late = runner.out.with_name("late")
    runner.run(_join(spark, feed), lateRows=late)
    wider = epochs[1]["a"].append_column("new", epochs[1]["a"]["id"])
    feed.add({"a": wider, "b": epochs[1]["b"].drop_columns("k2")})
    # As the newer files have it: one column more, one less, one of another type. Whether a column may have
    # nulls is no part of its type.
    schema = "id BIGINT, t TIMESTAMP, k BIGINT, k2 STRING, v INT, new BIGINT"
    frame = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(feed.root / "a"))
    frame = frame.withColumn("k2", F.length("k2")).withColumn("v", F.coalesce("v", F.lit(0)))
    runner.run(_join(spark, feed, frame, other=feed.df("b").drop("k2")), lateRows=late)
    assert check(_join(spark, feed).query(), epochs, runner.results()).num_rows > 0


# The frame of a as it is now, the column that the error must name, its type before and now.
DRIFT: dict[str, tuple[Callable[[Any], Any], str, str, str]] = {
    "wider": (lambda a: a.withColumn("v", F.col("v").cast("bigint")), "v", "'int'", "'bigint'"),
    "narrower": (lambda a: a.withColumn("v", F.col("v").cast("smallint")), "v", "'int'", "'smallint'"),
    "another type": (lambda a: a.withColumn("v", F.col("v").cast("string")), "v", "'int'", "'string'"),
    "a narrower key": (lambda a: a.withColumn("k", F.col("k").cast("int")), "k", "'bigint'", "'int'"),
    "a time without a zone": (
        lambda a: a.withColumn("t", F.col("t").cast("timestamp_ntz")),
        "t",
        "'timestamp'",
        "'timestamp_ntz'",
    ),
    "a new column": (lambda a: a.withColumn("new", F.lit(1)), "new", "nothing", "'int'"),
    "a column less": (lambda a: a.drop("v"), "v", "'int'", "nothing"),
    "a column renamed": (lambda a: a.withColumnRenamed("v", "w"), "v", "'int'", "nothing"),
    "a name in other letters": (lambda a: a.withColumnRenamed("v", "V"), "v", "'int'", "nothing"),
    "a new field": (
        lambda a: a.withColumn("s", F.struct("v", "k2", "id")),
        "s",
        "'struct<v:int,k2:string>'",
        "'struct<v:int,k2:string,id:bigint>'",
    ),
    "a field that cannot be null": (
        lambda a: a.withColumn("s", F.struct(F.coalesce("v", F.lit(0)).alias("v"), "k2")),
        "s",
        "'struct<v:int,k2:string>'",
        "'struct<v:int not null,k2:string>'",
    ),
}


@pytest.mark.parametrize("drift", DRIFT)
def test_a_column_that_the_query_uses_must_stay_as_it_is(spark, stopped, drift):
    feed, _, runner = stopped
    change, column, old, new = DRIFT[drift]
    before = digests(runner.checkpoint)
    with pytest.raises(CheckpointError) as refusal:
        runner.start(_join(spark, feed, change(_with_struct(feed.df("a"))), select=("a.*", "b.id")))
    assert refusal.value.must.endswith(f"streams.a.columns.{column} was {old}")
    assert refusal.value.got == new
    assert digests(runner.checkpoint) == before


def test_a_new_column_is_no_drift_for_a_query_that_names_its_columns(spark, stopped):
    feed, runner, _ = stopped
    query = runner.run(_join(spark, feed, feed.df("a").withColumn("new", F.lit(1))))
    assert query.recentProgress == []
    check(_join(spark, feed).query(), feed.epochs, runner.results())


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (lambda a: a.drop("v"), QueryError, r"a column must exist; got 'v' in a"),
        (lambda a: a.withColumnRenamed("k", "key"), QueryError, r"a column must exist; got 'k' in a"),
        (
            lambda a: a.withColumn("k", F.col("k").cast("string")),
            QueryError,
            r"types that compare: a.k = b.k; got string and bigint",
        ),
        (
            lambda a: a.withColumn("k", F.col("k").cast("int")),
            CheckpointError,
            r"streams.a.columns.k was 'bigint'; got 'int'. Hint: give the column its old name and type",
        ),
    ],
    ids=["dropped", "renamed", "not comparable", "narrowed"],
)
def test_named_columns_must_be_there_with_their_types(spark, stopped, change, error, message):
    feed, runner, _ = stopped
    before = digests(runner.checkpoint)
    with pytest.raises(error, match=message):
        runner.start(_join(spark, feed, change(feed.df("a"))))
    assert digests(runner.checkpoint) == before


def test_a_file_that_has_other_types_than_declared_stops_the_query_before_its_epoch(spark, feed, runner):
    epochs = generate(dict.fromkeys("ab", Shape(rows=20)), epochs=2, seed=33)
    feed.add(epochs[0])
    join = _join(spark, feed)
    runner.run(join)
    wrong = epochs[1]["a"].set_column(4, "v", epochs[1]["a"]["v"].cast(pa.string()))
    feed.add({**epochs[1], "a": wrong})
    ours = [runner.checkpoint / name for name in ("manifests", "slices", "published")]
    before = [digests(folder) for folder in (*ours, runner.out)]
    query = runner.start(join)
    with pytest.raises(Exception, match=r"(?i)schema|type|column"):
        query.awaitTermination()
    assert [digests(folder) for folder in (*ours, runner.out)] == before
    pq.write_table(epochs[1]["a"], feed.root / "a" / "00001.parquet")
    runner.run(join)
    assert check(join.query(), epochs, runner.results()).num_rows > 0
