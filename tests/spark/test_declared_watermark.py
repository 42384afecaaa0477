"""``withWatermark`` is honoured or refused, never ignored, and Spark does nothing else because of it."""

import pytest
from pyspark.sql import functions as F  # noqa: N812  # as everybody calls it

from midstream import Join, QueryError
from midstream.spark.parquet_source import ParquetSources
from midstream.testing import Shape, generate
from midstream.values import duration
from tests.spark.runner import check

pytestmark = pytest.mark.spark

SHAPE = Shape(rows=30, late=0.1, null_times=0.05)
EPOCHS = generate(dict.fromkeys("ab", SHAPE), epochs=4, seed=6)
MINUTE = duration("1 minute", "a delay")


@pytest.fixture
def frame(feed):
    feed.add(EPOCHS[0])
    return feed.df("a")


def declared(df, **said):
    (stream,) = Join(df.sparkSession).stream("a", df, **said)._streams
    return str(stream.time), stream.lateness


def test_a_watermark_says_time_and_lateness_wherever_its_column_goes(frame):
    marked = frame.withWatermark("t", "1 minute")
    assert declared(marked) == ("a.t", MINUTE)
    assert declared(marked, time="T") == ("a.t", MINUTE)
    assert declared(marked, lateness="60 seconds") == ("a.t", MINUTE)
    assert declared(marked.filter("k > 0").select("id", F.col("t").alias("at"))) == ("a.at", MINUTE)
    assert declared(marked.select(F.struct("id", "t").alias("event"))) == ("a.event.t", MINUTE)
    assert declared(marked.union(marked)) == ("a.t", MINUTE)
    assert declared(marked.select(F.window("t", "1 minute").alias("w"), "t")) == ("a.t", MINUTE)
    assert declared(frame, time="t") == ("a.t", 0)


def test_what_cannot_be_honoured_is_refused(frame):
    marked = frame.withWatermark("t", "1 minute")
    twice = marked.union(frame.withWatermark("t", "1 hour"))
    two_columns = marked.withColumn("again", F.col("t"))
    computed = marked.withColumn("t", F.expr("t + INTERVAL 1 HOUR"))
    other = frame.withColumn("other", F.col("t")).withWatermark("t", "1 minute")
    for df, said, message in (
        (frame, {}, "stream 'a' must have an event-time column; got no time, and no watermark"),
        (marked, {"lateness": "5 seconds"}, "got 5 seconds, and a watermark with 1 minute"),
        (marked, {"lateness": "0 seconds"}, "must be the delay of its watermark"),
        (other, {"time": "other"}, "got a.other, and a watermark on a.t"),
        (two_columns, {}, "got watermarks on a.t, a.again. Hint: say which of them, e.g. time='t'"),
        (
            frame.withWatermark("t", "1 month"),
            {},
            "must have a fixed length; got '1 months'. Hint: months and",
        ),
        (twice, {}, r"delays of 1 minute and 1 hour. Hint: say which, as in lateness='1 hour'"),
        (computed, {"time": "t"}, "a watermark with a delay of 1 minute of a column that is gone, or was"),
        (marked.drop("t").withColumn("u", F.current_timestamp()), {"time": "u"}, "must have one lateness"),
    ):
        with pytest.raises(QueryError, match=message):
            declared(df, **said)
    assert declared(twice, lateness="1 hour") == ("a.t", 60 * MINUTE)
    assert declared(two_columns, time="again") == ("a.again", MINUTE)
    assert declared(computed, time="t", lateness="2 hours") == ("a.t", 120 * MINUTE)


def test_marks_in_the_schema_of_old_files_declare_nothing(spark, frame, feed):
    schema = frame.withWatermark("t", "1 minute").schema
    old = spark.readStream.schema(schema).parquet(str(feed.root / "a"))
    assert declared(old, time="t") == ("a.t", 0)


@pytest.mark.parametrize("computed", [False, True])
def test_results_are_those_of_the_lateness_and_spark_adds_no_batches(
    spark, feed, runner, monkeypatch, computed
):
    read_by_tasks: list[bool] = []
    real = ParquetSources.messages

    def messages(self, *given):
        read_by_tasks.append(True)
        return real(self, *given)

    monkeypatch.setattr(ParquetSources, "messages", messages)
    feed.add(*EPOCHS)
    join = Join(spark)
    for name in "ab":
        df = feed.df(name).withWatermark("t", "5 seconds")
        join = join.stream(name, df.withColumn("v", F.col("v") + 0) if computed else df)
    join = join.on("a.k = b.k").within("15 seconds").select("a.id", "b.id")
    query = runner.run(join)
    assert [p["batchId"] for p in query.recentProgress] == [0, 1, 2, 3]
    assert len(read_by_tasks) == (0 if computed else 4)
    assert sum(p["numLateRows"] for p in query.recentProgress) > 0
    assert join.query().streams[0].lateness == 5_000_000
    assert check(join.query(), EPOCHS, runner.results()).num_rows > 0
    # A second run, without new rows, neither has an epoch nor changes anything.
    assert runner.run(join).recentProgress == []
