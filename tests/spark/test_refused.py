"""Bad input gets an error of our own before anything starts."""

from pathlib import Path

import pandas as pd
import pytest

from midstream import CheckpointError, Join, MidstreamError, OptionError, PlanError, QueryError
from midstream.testing import Shape, generate
from tests.plain_errors import assert_plain

pytestmark = pytest.mark.spark


@pytest.fixture
def streams(spark, feed):
    feed.add(*generate(dict.fromkeys("abc", Shape(rows=2)), epochs=1, seed=1))
    return {name: feed.df(name) for name in "abc"}


@pytest.fixture
def pair(spark, streams):
    join = Join(spark).stream("a", streams["a"], time="t").stream("b", streams["b"], time="t")
    return join.on("a.k = b.k")


def test_streams_that_cannot_be_joined(spark, streams):
    join = Join(spark).stream("a", streams["a"], time="t")
    with pytest.raises(QueryError, match=r"must be a streaming DataFrame; got a static one"):
        join.stream("b", spark.range(3), time="id")
    with pytest.raises(QueryError, match=r"name of its own; got 'A'"):
        join.stream("A", streams["b"], time="t")
    with pytest.raises(QueryError, match=r"must be a word"):
        join.stream("a b", streams["b"], time="t")
    with pytest.raises(QueryError, match=r"'when' in b. Hint: b has id, t, k, k2, v"):
        join.stream("b", streams["b"], time="when")
    with pytest.raises(QueryError, match=r"must be a timestamp; got b.k of type bigint"):
        join.stream("b", streams["b"], time="k")
    with pytest.raises(QueryError, match=r"the lateness of b must be a duration; got 'soon'"):
        join.stream("b", streams["b"], time="t", lateness="soon")
    with pytest.raises(QueryError, match=r"two or more streams; got a"):
        _ = join.writeStream
    interval = streams["b"].selectExpr("*", "t - t AS gap")
    with pytest.raises(QueryError, match=r"b.gap of type interval day to second"):
        join.stream("b", interval, time="t")
    for text, shown in (("struct(t - t AS gap)", "x.gap of type interval"), ("array(null)", "of type void")):
        with pytest.raises(QueryError, match=shown):
            join.stream("b", streams["b"].selectExpr("*", f"{text} AS x"), time="t")
    with pytest.raises(QueryError, match=r"b.x.c with collation UNICODE_CI"):
        join.stream("b", streams["b"].selectExpr("*", "struct(k2 COLLATE UNICODE_CI AS c) AS x"), time="t")
    with pytest.raises(QueryError, match=r"byte by byte"):
        join.stream("b", streams["b"].selectExpr("*", "k2 COLLATE UNICODE_CI AS c"), time="t")
    with pytest.raises(
        QueryError,
        match=r"must be a DataFrame; got a value of type list. Hint: read it with spark.readStream",
    ):
        join.stream("b", [1, 2], time="t")  # type: ignore[arg-type]
    with pytest.raises(QueryError, match=r"must be a DataFrame; got a value of type DataFrame of pandas"):
        join.stream("b", pd.DataFrame({"t": [1]}), time="t")
    with pytest.raises(QueryError, match=r"a column must be given by its name; got 3"):
        join.stream("b", streams["b"], time=3)  # type: ignore[arg-type]
    with pytest.raises(QueryError, match=r"by its name; got ''. Hint: the columns are id, t"):
        join.stream("b", streams["b"], time="")
    with pytest.raises(QueryError, match=r"a name, and then a DataFrame; got them in the other order"):
        join.stream(streams["b"], "b", time="t")  # type: ignore[arg-type]


def test_joins_that_cannot_be_run(pair, streams):
    with pytest.raises(QueryError, match=r"connected .* nothing between a, b and c"):
        _ = pair.stream("c", streams["c"], time="t").writeStream
    with pytest.raises(QueryError, match=r"types that compare: a.k = b.k2; got bigint and string"):
        _ = pair.on("a.k = b.k2").writeStream
    with pytest.raises(QueryError, match=r"a predicate must be text"):
        pair.on(streams["a"]["k"] == streams["b"]["k"])
    with pytest.raises(QueryError, match=r"a window must be for all streams or for two"):
        pair.within("1 minute", "a")
    with pytest.raises(QueryError, match=r"streams of the join; got 'z'"):
        pair.within("1 minute", "a", "z")
    with pytest.raises(QueryError, match=r"a window must be a duration; got '5 apples'"):
        pair.within("5 apples")
    with pytest.raises(QueryError, match=r"a name of its own; got 'a_k'"):
        _ = pair.select("a.k", "b.k AS a_k").writeStream


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("adapt", "always", "adapt must be one of auto, off; got 'always'"),
        ("goal", "glory", "goal must be one of steady, cheap, quick; got 'glory'"),
        (
            "strategy",
            "magic",
            "strategy must be one of auto, hybrid, moving_state, parallel_track; got 'magic'",
        ),
        ("stateMemory", "much", "stateMemory must be a size such as '512m'; got 'much'"),
        ("stateMemory", "0g", "stateMemory must be a size such as '512m'; got '0g'"),
        (
            "stateMemory",
            "512",
            "stateMemory must be a size of a kilobyte at least; got 512 bytes",
        ),
        ("spill", "all", "spill must be one of bottom_up, local_output, global_output"),
        ("spillShare", "2", "spillShare must be a number from 0 to 1"),
        ("cleanupDelay", "soon", "cleanupDelay must be a duration"),
        ("balance", "lazy", "balance must be one of off, lazy_disk, active_disk; got 'lazy'"),
        ("balanceProductivity", "0.5", "balanceProductivity must be a number from 1 on; got '0.5'"),
        ("initialShares", "2,x", "initialShares must be whole numbers, such as '2,1,1'; got '2,x'"),
        ("partitions", "0", "partitions must be a whole number from 1 to 512; got '0'"),
        ("groups", "many", "groups must be a whole number"),
        ("idleTimeout", "soon", "idleTimeout must be a duration"),
        ("path", "s3://bucket/out", "a local or mounted file system"),
        ("path", None, "path must have a value; got None"),
        ("checkpointLocation", "/tmp/a[b]", "characters that Spark takes for patterns"),  # noqa: S108
        ("partitions", "²", "partitions must be a whole number"),
        ("lateShareWarning", "5%", "lateShareWarning must be a number from 0 to 1, such as 0.05; got '5%'"),
        ("lateShareWarning", "1.01", "lateShareWarning must be a number from 0 to 1"),
        ("lateShareWarning", "nan", "lateShareWarning must be a number from 0 to 1"),
        ("truncate", "maybe", "truncate must be one of true, false"),
        ("colour", "red", "the options are path, checkpointLocation"),
    ],
)
def test_options_that_are_unknown_malformed_or_not_there_yet(pair, option, value, message):
    with pytest.raises(OptionError, match=message):
        pair.writeStream.option(option, value)


def test_writers_that_cannot_start(pair, tmp_path):
    with pytest.raises(OptionError, match=r"must go to one sink; got none"):
        pair.writeStream.start()
    with pytest.raises(OptionError, match=r"got console and foreachBatch"):
        pair.writeStream.format("console").foreachBatch(print).start()
    with pytest.raises(OptionError, match=r"the parquet sink must have a path"):
        pair.writeStream.format("parquet").start()
    with pytest.raises(OptionError, match=r"must have a checkpointLocation"):
        pair.writeStream.format("parquet").start(str(tmp_path))
    with pytest.raises(OptionError, match=r"the memory sink must have a name"):
        pair.writeStream.format("memory").start()
    with pytest.raises(OptionError, match=r"the format must be one of parquet"):
        pair.writeStream.format("delta")
    with pytest.raises(OptionError, match=r"must be 'append'"):
        pair.writeStream.outputMode("complete")
    with pytest.raises(OptionError, match=r"a trigger must be one of"):
        pair.writeStream.trigger()
    with pytest.raises(OptionError, match=r"foreachBatch must have a function"):
        pair.writeStream.foreachBatch("print")
    with pytest.raises(OptionError, match=r"groups must be at least as many as partitions"):
        pair.writeStream.format("console").option("groups", 2).option("partitions", 3).start()
    with pytest.raises(PlanError, match=r"b is missing"):
        pair.writeStream.format("console").option("plan", "a").start()
    assert issubclass(PlanError, MidstreamError)


def test_folders_of_others_and_folders_that_cannot_be_written_are_left_as_they_are(pair, feed, tmp_path):
    (tmp_path / "file").touch()
    spark_own = tmp_path / "spark-own"
    (spark_own / "offsets").mkdir(parents=True)
    (spark_own / "metadata").touch()

    def refusal(kind, **folders):
        given = {"path": tmp_path / "out", "checkpointLocation": tmp_path / "checkpoint", **folders}
        with pytest.raises(kind) as raised:
            pair.writeStream.format("parquet").options(**given).start()
        assert_plain(raised.value)
        return str(raised.value)

    foreign = refusal(CheckpointError, checkpointLocation=spark_own)
    assert f"got {spark_own}, the checkpoint of a query of Spark's own (metadata, offsets)" in foreign
    assert sorted(path.name for path in spark_own.rglob("*")) == ["metadata", "offsets"]
    below = refusal(CheckpointError, checkpointLocation=tmp_path / "file" / "x")
    assert below.startswith("checkpointLocation must be a folder that can be read and written; got ")
    assert refusal(OptionError, path=tmp_path / "file").startswith("path must be a folder that can be")
    assert "lateRows must be a folder" in refusal(OptionError, lateRows=tmp_path / "file" / "late")
    (source,) = {str(Path(file).parent) for file in feed.root.glob("a/*.parquet")}
    for given in ({"path": source}, {"path": f"{source}/out"}, {"lateRows": f"file:{source}/late"}):
        told = refusal(OptionError, **given)
        assert f"must be neither a folder that a stream reads nor inside of one; got {source}" in told
        assert f"and stream a reads {source}" in told
    assert "or write there with Spark: .foreachBatch(" in refusal(OptionError, path="hdfs://host/out")


def test_folders_that_are_in_each_others_way_by_a_link(pair, tmp_path):
    for name in ("out", "checkpoint"):
        (tmp_path / name).mkdir()
    (tmp_path / "late").symlink_to("out")
    (tmp_path / "state").symlink_to("checkpoint")

    def writer(**folders):
        given = {name: tmp_path / folder for name, folder in folders.items()}
        return pair.writeStream.options(checkpointLocation=tmp_path / "checkpoint", **given)

    with pytest.raises(OptionError, match=rf"got lateRows {tmp_path}/late and path {tmp_path}/out"):
        writer(path="out", lateRows="late").format("parquet").start()
    with pytest.raises(OptionError, match=rf"got path {tmp_path}/state/x and checkpointLocation"):
        writer(path="state/x").format("parquet").start()
    with pytest.raises(OptionError, match=r"lateRows must be neither the checkpointLocation nor inside"):
        writer(lateRows="state/results").foreachBatch(lambda rows, epoch: None).start()
    # Not even a lease was taken.
    assert list((tmp_path / "checkpoint").iterdir()) == []
