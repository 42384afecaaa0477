"""Spark's own state loses late rows uncounted: DataFrames that have it are refused, all others are taken."""

import pytest
from pyspark.sql import functions as F  # noqa: N812  # as everybody calls it

from midstream import Join, QueryError
from midstream.testing import Shape, generate
from tests.plain_errors import assert_plain

pytestmark = pytest.mark.spark


@pytest.fixture
def frame(feed):
    feed.add(*generate(dict.fromkeys("ab", Shape(rows=5)), epochs=1, seed=1))
    return feed.df("a")


def _same(key, batches, state):
    yield from batches


def test_state_of_sparks_own_is_refused_by_name(spark, feed, frame):
    marked = frame.withWatermark("t", "1 minute")
    other = (
        feed.df("b").withWatermark("t", "1 minute").select(F.col("k").alias("other"), F.col("t").alias("u"))
    )
    marked.createOrReplaceTempView("marked")
    other.createOrReplaceTempView("other")
    counts = marked.groupBy(F.window("t", "1 minute"), "k").count()
    with_state = marked.groupBy("k").applyInPandasWithState(
        _same, "t timestamp", "n int", "append", "NoTimeout"
    )
    refused = {
        "dropDuplicates or distinct": [marked.dropDuplicates(["id", "t"]), frame.distinct()],
        "dropDuplicatesWithinWatermark": [marked.dropDuplicatesWithinWatermark(["id"])],
        "DISTINCT": [spark.sql("SELECT DISTINCT k, t FROM marked")],
        "intersect": [marked.select("t").intersect(other.select("u"))],
        "subtract or exceptAll": [marked.select("t").subtract(other.select("u"))],
        "limit": [frame.limit(3), frame.filter("k > 0").limit(3).select("t", "k")],
        "an aggregation": [
            counts.selectExpr("window.start AS t", "k"),
            spark.sql("SELECT max(t) AS t FROM marked"),
        ],
        "a sort": [frame.orderBy("t")],
        "applyInPandasWithState": [with_state],
        "a join of two streams": [
            marked.join(other, F.expr("k = other AND t >= u AND t <= u + INTERVAL 1 MINUTE")),
            spark.sql(
                "WITH some AS (SELECT * FROM marked) SELECT * FROM some JOIN other ON k = other AND t = u"
            ),
        ],
    }
    for what, frames in refused.items():
        for df in frames:
            with pytest.raises(QueryError, match=rf"'a' must have no state .*; got {what}. Hint: ") as raised:
                Join(spark).stream("a", df, time="t")
            assert_plain(raised.value)


def test_work_on_single_rows_and_with_tables_is_taken(spark, frame):
    table = spark.range(10).withColumnRenamed("id", "k")
    table.createOrReplaceTempView("static")
    frame.createOrReplaceTempView("rows")
    busiest = table.groupBy("k").count().orderBy("k").limit(3).dropDuplicates(["k"])
    taken = [
        frame.join(table, "k"),
        frame.join(busiest, "k", "left"),
        busiest.join(frame, "k"),
        frame.union(frame).unionByName(frame.filter("k > 1").withColumn("v", F.lit(1))),
        frame.withColumn("part", F.explode(F.array("k", "v"))),
        frame.repartition(2).withColumn("w", F.window("t", "1 minute")),
        frame.mapInPandas(lambda batches: batches, frame.schema),
        spark.sql("SELECT * FROM rows WHERE k IN (SELECT k FROM static) AND v > (SELECT min(k) FROM static)"),
    ]
    for df in taken:
        (stream,) = Join(spark).stream("a", df, time="t")._streams
        assert str(stream.time) == "a.t"
