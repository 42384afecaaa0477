"""Comparing DataFrames: what has the same rows is the same, however it was written, and nothing else is."""

from types import SimpleNamespace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import functions as F  # noqa: N812  # as everybody calls it

from midstream.errors import QueryError
from midstream.spark.compare_frames import check_same_rows

pytestmark = pytest.mark.spark

SCHEMA = "id long, k long, v long, t timestamp"
READ = ["id", "k", "t"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("frames")
    for name in ("live", "other", "one", "two"):
        (folder / name).mkdir()
        pq.write_table(pa.table({"id": [1], "k": [2], "v": [3]}), folder / name / "0.parquet")
    return folder


@pytest.fixture(scope="module")
def read(spark, folder):
    """What makes DataFrames, as a program that is run again does."""

    def live(schema=SCHEMA, name="live", kind="parquet", **options):
        return spark.readStream.schema(schema).options(**options).format(kind).load(str(folder / name))

    def rate(rows):
        read = spark.readStream.format("rate").option("rowsPerSecond", rows).load()
        return read.selectExpr("value AS id", "value AS k", "value + 1 AS v", "timestamp AS t")

    memory = spark._jvm.org.apache.spark.sql.execution.streaming.runtime.MemoryStream
    encoder = spark._jvm.org.apache.spark.sql.Encoders.LONG()
    options = spark._jvm.scala.Option.empty()
    streams = [memory(n, spark._jsparkSession, options, encoder) for n in range(2)]

    def in_memory(number):
        frame = type(rate(1))(streams[number].toDF(), spark)
        return frame.selectExpr("value AS id", "value AS k", "timestamp_seconds(value) AS t")

    def plus(x):
        return x + 1

    def made_again(column):
        return F.udf(plus, "long")(column)

    def static():
        return spark.read.parquet(str(folder / "other")).drop("id", "v")

    def otherwise_written():
        return spark.readStream.schema(SCHEMA).parquet(f"file:{folder}//live/")

    table = spark.createDataFrame([(1, 2)], "k long, w long")
    for name in ("one", "two"):
        spark.sql(f"CREATE TABLE {name} ({SCHEMA}) USING parquet LOCATION '{folder}/{name}'")
    yield SimpleNamespace(
        live=live,
        otherwise_written=otherwise_written,
        of_table=spark.readStream.table,
        rate=rate,
        in_memory=in_memory,
        table=table,
        static=static,
        made_again=made_again,
        plus=F.udf(lambda x: x + 1, "long"),
        minus=F.udf(lambda x: x - 1, "long"),
    )
    for name in ("one", "two"):
        spark.sql(f"DROP TABLE {name}")


def pairs_that_are_the_same(it):
    live = it.live
    now = "t < current_timestamp()"
    yield live(), live()
    yield live().select(*READ), live().select("t", "v", "k", "id")
    yield live(), live(f"{SCHEMA}, more int").withColumn("x", F.col("more") + 1)
    yield live(), it.otherwise_written()
    yield live(kind="json"), live(", ".join(reversed(SCHEMA.split(", "))), kind="json")
    yield live().where("v > 1"), live(f"more int, {SCHEMA}").where("v > 1").select(*READ)
    yield live().where("k > 2"), live().select(*READ).where("k > 2")
    yield live().withColumn("k", F.col("k") + 1), live().withColumn("k", F.expr("k + 1")).drop("v")
    yield live().withWatermark("t", "1 second"), live().withWatermark("t", "1 second")
    yield live().withWatermark("t", "1 second").where("k > 1"), live().where("k > 1").drop("v")
    yield it.rate(1), it.rate(1).drop("v")
    yield it.of_table("one"), it.of_table("one").drop("v")
    yield it.in_memory(0), it.in_memory(0).withColumn("x", F.lit(1))
    yield live().withColumn("k", it.made_again("k")), live().withColumn("k", it.made_again("k"))
    yield live().withColumn("k", it.minus("k")), live().drop("v").withColumn("k", it.minus("k"))
    yield live().where(now), live().drop("v").where(now)
    yield live().where(F.rand(7) < 0.5), live().where(F.rand(7) < 0.5)
    yield live().join(it.table, "k"), live().drop("v").join(it.table, "k")
    yield live().join(it.static(), "k"), live().drop("v").join(it.static(), "k")
    yield live().union(live(name="other")), live().union(live(name="other")).drop("v")
    frame = live().where(F.rand() < 0.5)
    yield frame, frame


def pairs_that_differ(it):
    live, plus = it.live, it.plus
    yield live(), live().where("k > 1"), "(k > 1)) instead of nothing"
    yield live().where("k > 1"), live(), "nothing instead of Filter"
    yield (
        live().where("k > 1"),
        live().where("k > 2"),
        "(k > 2)) instead of Filter (isnotnull(",
    )
    yield live(), live().withColumn("k", F.col("k") + 1), "Project [id, (k + 1) AS k, t] instead of"
    yield live(), live().selectExpr("id", "v AS k", "t"), "Project [id, v AS k, t] instead of"
    yield live(), live().selectExpr("k AS id", "id AS k", "t"), "Project [k AS id, id AS k, t] instead of"
    # To Spark it is the same result as far as columns may have any names.
    yield live(), live().toDF("id", "v", "k", "t"), "Project [id, v AS k, t] instead of"
    yield live(), live(SCHEMA.replace("k long", "k int")), "k INT, t TIMESTAMP instead of id BIGINT, k BIGINT"
    yield live(), live(name="other"), "/other instead of "
    yield live(), live(maxFilesPerTrigger=3), "another value of maxfilespertrigger"
    yield live(), live(kind="json"), "format json instead of parquet"
    # Those that a column is read beside decide which rows of such a file are whole.
    yield (
        live(kind="json"),
        live(f"{SCHEMA}, more int", kind="json"),
        "more INT, t TIMESTAMP, v BIGINT instead of",
    )
    # Those of this one have no names in the file.
    yield live(kind="csv"), live("k long, id long, v long, t timestamp", kind="csv"), "k BIGINT, id BIGINT"
    yield it.rate(1), it.rate(2), "another value of rowspersecond"
    yield it.in_memory(0), it.in_memory(1), "another source of format memory"
    yield live(), it.rate(1), "format rate instead of parquet"
    yield it.of_table("one"), it.of_table("two"), "/two instead of "
    yield live().union(live(name="other")), live(), "nothing instead of Union"
    yield live().withColumn("k", plus("k")), live().withColumn("k", it.minus("k")), "Spark cannot say"
    yield live().where(F.rand() < 0.5), live().where(F.rand() < 0.5), "Filter (rand("
    yield live().drop("k"), live(), "a column k that it did not have"


def refused(running, given, columns=READ):
    """Why a DataFrame of stream a is refused; nothing if it is not."""
    try:
        check_same_rows({"a": running}, {"a": given}, {"a": columns})
    except QueryError as error:
        return error.got
    return ""


def test_frames_that_have_the_same_rows_are_the_same(read):
    for number, (running, given) in enumerate(pairs_that_are_the_same(read)):
        assert (number, refused(running, given)) == (number, "")


def test_what_differs_is_said(read):
    for running, given, text in pairs_that_differ(read):
        assert text in refused(running, given)


def test_a_static_table_has_the_files_that_were_there_when_it_was_made(read, tmp_path):
    row = pa.table({"k": [2]})
    pq.write_table(row, tmp_path / "0.parquet")

    def joined(*columns):
        table = read.live().sparkSession.read.parquet(str(tmp_path))
        return read.live().drop(*columns).join(table, "k")

    running = joined()
    assert refused(running, joined()) == refused(running, joined("v")) == ""
    pq.write_table(row, tmp_path / "1.parquet")
    for given in (joined(), joined("v")):
        assert f"were in the static table file:{tmp_path}" in refused(running, given)
    assert refused(running, running.drop("v")) == ""


def test_values_of_options_are_not_shown_nor_streams_compared_that_are_not_read(read):
    running = {"a": read.live(key="hidden 1"), "b": read.live(), "d": read.live()}
    given = {"a": read.live(key="hidden 2"), "b": read.live().where("k > 1"), "c": read.live()}
    with pytest.raises(QueryError) as error:
        check_same_rows(running, given, dict.fromkeys("abc", READ))
    assert "got another value of key in the one of stream a; Filter" in str(error.value)
    assert "instead of nothing in the one of stream b. Hint: put a condition" in str(error.value)
    assert "hidden" not in str(error.value)
    check_same_rows(running, given, {"c": READ})


def test_what_spark_does_not_let_compare_is_refused(read, monkeypatch):
    """Its plans are internals, which may change."""
    monkeypatch.setattr("midstream.spark.compare_frames.kind_of", lambda _: "Unknown")
    assert "one that cannot be compared" in refused(read.live(), read.live().drop("v"))
