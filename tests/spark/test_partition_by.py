"""How the Parquet sink writes: in folders, with a codec, and with the checkpoint that the session says."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from midstream import Join, OptionError
from midstream.storage.output_table import OutputTable
from midstream.testing import Shape, assert_same_rows, generate
from tests.spark.runner import check, one_key

pytestmark = pytest.mark.spark

ODD = ["tea", "a/b=c:d", "", "%2F", "{x}[y]", "é ü", "#'\"*?\\^", "tab\there", None]


@pytest.fixture
def join(spark, feed):
    return _join(spark, feed, epochs=3)


def _join(spark, feed, epochs: int) -> Join:
    feed.add(*generate(dict.fromkeys("ab", Shape(rows=30)), epochs=epochs, seed=1))
    pair = Join(spark)
    for name in "ab":
        rows = feed.df(name).selectExpr("*", "cast(t AS date) AS day", "id % 2 = 0 AS even")
        pair = pair.stream(name, rows, time="t", lateness="5 seconds")
    items = ("a.id", "a.k AS key", "b.day AS day", "b.even AS even")
    return pair.on("a.k = b.k").within("10 seconds").select(*items)


def _writer(join, tmp_path: Path):
    writer = join.writeStream.format("parquet").option("checkpointLocation", tmp_path / "checkpoint")
    return writer.trigger(availableNow=True)


def test_results_in_folders_are_the_same_results_exactly_once(spark, feed, join, tmp_path, monkeypatch):
    publish = OutputTable.publish

    def crash(self, outputs, **named):
        if any("-0000000001-" in output.published for output in outputs):
            publish(self, outputs[:1], **named)
            raise OSError("the driver dies here")
        publish(self, outputs, **named)

    plain, out = tmp_path / "plain", tmp_path / "out"
    _writer(join, tmp_path / "other").start(str(plain)).awaitTermination()
    writer = _writer(join, tmp_path).partitionBy("DAY", "even")
    monkeypatch.setattr(OutputTable, "publish", crash)
    with pytest.raises(Exception, match="the driver dies here"):
        writer.start(str(out)).awaitTermination()
    monkeypatch.undo()
    writer.start(str(out)).awaitTermination()
    want = spark.read.parquet(str(plain))
    got = spark.read.parquet(str(out))
    assert got.columns == ["a_id", "key", "day", "even"]
    assert_same_rows(got.select(*want.columns).toArrow(), want.toArrow())
    file = next(out.glob("day=*/even=true/*.parquet"))
    assert pq.ParquetFile(file).schema_arrow.names == ["a_id", "key"]


def test_folders_have_the_names_that_spark_gives_them(spark, tmp_path):
    rows = pa.table(
        {"t": pa.array([0] * len(ODD), pa.timestamp("us", "UTC")), "k": ODD, "id": range(len(ODD))}
    )
    (tmp_path / "in").mkdir()
    pq.write_table(rows, tmp_path / "in" / "0.parquet")
    static = spark.read.parquet(str(tmp_path / "in"))
    stream = spark.readStream.schema(static.schema).parquet(str(tmp_path / "in"))
    one, other = stream, stream.select("t", "id")
    join = Join(spark).stream("a", one, time="t").stream("b", other, time="t").on("a.id = b.id")
    join = join.select("a.k AS `odd:name`", "b.id AS id")
    assert (join.columns, join.schema.simpleString()) == (
        ["odd:name", "id"],
        "struct<odd:name:string,id:bigint>",
    )
    query = _writer(join, tmp_path).start(str(tmp_path / "ours"), partitionBy=["odd:name"])
    query.awaitTermination()
    expected = static.selectExpr("k AS `odd:name`", "id")
    expected.write.partitionBy("odd:name").parquet(str(tmp_path / "sparks"))

    def folders(name: str) -> set[str]:
        return {path.name for path in (tmp_path / name).glob("odd*")}

    assert folders("ours") == folders("sparks")
    got, want = (spark.read.parquet(str(tmp_path / name)).toArrow() for name in ("ours", "sparks"))
    assert_same_rows(got, want)


def test_a_partitioned_query_without_results_leaves_a_readable_table(spark, join, tmp_path):
    writer = _writer(join.on("a.v > b.v + 1000"), tmp_path).partitionBy("day")
    writer.start(str(tmp_path / "out")).awaitTermination()
    table = spark.read.parquet(str(tmp_path / "out"))
    assert sorted(table.columns) == ["a_id", "day", "even", "key"]
    assert table.count() == 0


def test_columns_that_cannot_be_folders(join, tmp_path):
    def refused(message: str, *columns: object, writer=None) -> None:
        writer = writer or _writer(join, tmp_path).option("path", tmp_path / "out")
        with pytest.raises(OptionError, match=message):
            writer.partitionBy(*columns).start()

    refused(r"must name columns of the results; got 'colour'. Hint: the columns are a_id", "colour")
    refused(r"must name each column once; got day, day. Hint: leave the repetition out", "day", "Day")
    refused(r"must have names of columns; got 7", 7)
    refused(r"must leave a column for the files.*Hint: leave one column out", ["a_id", "key", "day", "even"])
    refused(r"got the console sink. Hint: in a function", "day", writer=join.writeStream.format("console"))
    timed = join.select("a.t AS at")
    with pytest.raises(OptionError, match=r"a boolean or a date; got at of type timestamp"):
        _writer(timed, tmp_path).option("path", tmp_path / "out").partitionBy("at").start()
    assert not (tmp_path / "checkpoint").exists()


def test_files_have_the_codec_of_the_option_or_of_the_session(spark, feed, tmp_path):
    join = _join(spark, feed, epochs=1)

    def codecs(name: str, **options: str) -> set[str]:
        writer = join.writeStream.format("parquet").trigger(availableNow=True).options(**options)
        writer = writer.option("checkpointLocation", tmp_path / f"{name} checkpoint")
        writer.start(str(tmp_path / name)).awaitTermination()
        files = [pq.read_metadata(path) for path in (tmp_path / name).glob("*.parquet")]
        assert spark.read.parquet(str(tmp_path / name)).count() == sum(file.num_rows for file in files) > 0
        return {file.row_group(0).column(0).compression for file in files if file.num_row_groups}

    assert codecs("default") == {"SNAPPY"}
    assert codecs("option", compression="ZSTD") == {"ZSTD"}
    spark.conf.set("spark.sql.parquet.compression.codec", "gzip")
    try:
        assert codecs("session") == {"GZIP"}
        assert codecs("both", compression="uncompressed") == {"UNCOMPRESSED"}
        spark.conf.set("spark.sql.parquet.compression.codec", "lzo")
        with pytest.raises(OptionError, match=r"compression.codec must be one of none, snappy.*; got 'lzo'"):
            codecs("lzo")
    finally:
        spark.conf.unset("spark.sql.parquet.compression.codec")
    for option in ("compression", "parquet.block.size", "maxRecordsPerFile"):
        with pytest.raises(OptionError):
            join.writeStream.option(option, "1")


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("spark.sql.files.maxRecordsPerFile", "1000"),
        ("spark.sql.parquet.writeLegacyFormat", "true"),
        ("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MILLIS"),
        ("spark.sql.parquet.datetimeRebaseModeInWrite", "LEGACY"),
    ],
)
def test_settings_that_the_files_would_not_follow_are_refused(spark, join, tmp_path, setting, value):
    writer = join.writeStream.format("parquet").option("checkpointLocation", tmp_path / "checkpoint")
    spark.conf.set(setting, value)
    try:
        with pytest.raises(OptionError, match=rf"{setting} must be left .*; got {value}. Hint: .*unset"):
            writer.start(str(tmp_path / "results"))
    finally:
        spark.conf.unset(setting)
    assert not (tmp_path / "checkpoint").exists()


def test_the_checkpoint_may_be_in_the_folder_of_the_session(spark, feed, tmp_path):
    feed.add(*generate(dict.fromkeys("ab", Shape(rows=30)), epochs=3, seed=1))
    join = one_key(spark, feed, "ab")
    spark.conf.set("spark.sql.streaming.checkpointLocation", str(tmp_path / "checkpoints"))
    try:
        writer = join.writeStream.format("parquet").trigger(availableNow=True)
        first = writer.queryName("pairs").start(str(tmp_path / "out"))
        first.awaitTermination()
        feed.add(*generate(dict.fromkeys("ab", Shape(rows=30)), epochs=4, seed=1)[3:])
        again = writer.start(str(tmp_path / "out"))
        again.awaitTermination()
        assert (again.id, [p["batchId"] for p in again.recentProgress]) == (first.id, [3])
        # Without a name, each start begins anew, as in Spark.
        for _ in range(2):
            unnamed = join.writeStream.foreachBatch(lambda rows, batch: None).trigger(availableNow=True)
            unnamed.start().awaitTermination()
        names = sorted(path.name for path in (tmp_path / "checkpoints").iterdir())
        assert len(names) == 3
        assert "pairs" in names
    finally:
        spark.conf.unset("spark.sql.streaming.checkpointLocation")
    check(join.query(), feed.epochs, spark.read.parquet(str(tmp_path / "out")).toArrow())
