"""What those who know PySpark try first: it works, or is refused at that call."""

from typing import Any

import pytest
from pyspark.sql import functions as F  # noqa: N812  # as everybody has it
from pyspark.sql.streaming.query import StreamingQuery

from midstream import Join, NoSuchMethodError, OptionError, QueryError
from midstream.spark.query import JoinStreamingQuery
from midstream.spark.stopping import BatchStopped, is_caused_by_stopping
from midstream.testing import Shape, generate
from tests.spark.runner import check, one_key

pytestmark = pytest.mark.spark


@pytest.fixture
def join(spark, feed):
    feed.add(*generate(dict.fromkeys("abc", Shape(rows=20)), epochs=2, seed=1))
    return one_key(spark, feed)


def _wait_for(query: StreamingQuery) -> str:
    """A function of somebody who has never heard of joins; type checkers must accept it, too."""
    query.awaitTermination()
    return query.id


def test_the_handle_is_one_of_sparks(spark, feed, join, runner, capsys):
    writer = join.writeStream.queryName("triples").trigger(processingTime="1 second")
    spark.streams.resetTerminated()
    query = writer.start(runner.out, format="parquet", checkpointLocation=runner.checkpoint, adapt="off")
    assert isinstance(query, JoinStreamingQuery)
    assert issubclass(JoinStreamingQuery, StreamingQuery)
    (active,) = [one for one in spark.streams.active if one.name == "triples"]
    assert (active.id, active.runId) == (query.id, query.runId)
    assert spark.streams.get(query.id).runId == query.runId
    query.processAllAvailable()
    assert repr(query) == "<JoinStreamingQuery triples active: (a b) c>"
    assert query.explanation(False) == query.explanation("simple") == query.explanation()
    query.explain(True)
    printed = capsys.readouterr().out
    assert printed == f"{query.explanation('extended')}\n"
    assert printed.startswith(query.explanation())
    assert "== Physical Plan ==" in printed
    with pytest.raises(OptionError, match=r"one of False, True, 'simple', .*; got 'formatted'"):
        query.explain("formatted")
    assert query.awaitTermination(0.1) is False
    timeouts: tuple[Any, ...] = (0, -1, "x", [])
    for timeout in timeouts:
        with pytest.raises(OptionError, match="a timeout must be a number of seconds above 0"):
            query.awaitTermination(timeout)
    with pytest.raises(OptionError, match="got a value of type list"):
        query.explain([])  # type: ignore[arg-type]  # what a user may try
    query.stop()
    assert spark.streams.awaitAnyTermination(60)
    assert _wait_for(query) == active.id
    assert query.awaitTermination(1) is True
    assert query not in spark.streams.active
    check(join.query(), feed.epochs, runner.results())


def test_a_join_says_what_its_results_are_before_it_runs(join, capsys):
    pair = join.select("a.id AS id", "b.v", "c.k2 AS text")
    assert pair.columns == join.select(["a.id AS id", "b.v", "c.k2 AS text"]).columns == ["id", "b_v", "text"]
    assert pair.schema.simpleString() == "struct<id:bigint,b_v:int,text:string>"
    pair.printSchema()
    printed = capsys.readouterr().out
    assert printed.startswith("root\n |-- id: long (nullable = true)\n |-- b_v: integer")
    assert repr(pair) == "<Join a, b, c>"
    assert repr(Join(pair.spark)) == "<Join without streams>"
    pair.explain(True)
    printed = capsys.readouterr().out
    assert printed.startswith(pair.explanation())
    assert printed.count("== Physical Plan ==") == 3
    assert pair.explanation("extended").count("== Physical Plan ==") == 3
    for said in ({"extended": True}, {"mode": "extended"}):
        pair.explain(**said)
        assert capsys.readouterr().out.count("== Physical Plan ==") == 3
    assert pair.explanation("simple") == pair.explanation(False) == pair.explanation()
    for mode, hint in (("adaptive", "ask the running query"), ("formatted", "for a stream of its own")):
        with pytest.raises(OptionError, match=rf"explain must have a plan .*; got '{mode}'. Hint: {hint}"):
            pair.explain(mode)
    assert pair.dtypes == [("id", "bigint"), ("b_v", "int"), ("text", "string")]
    assert pair.isStreaming


def test_columns_by_name_or_as_lists_of_names(spark, feed, join):
    by_column = Join(spark)
    for name in "abc":
        by_column = by_column.stream(name, feed.df(name), time=F.col("T"), lateness="5 seconds")
    by_column = by_column.on(["k"]).within("15 seconds")
    assert by_column.query() == join.query()
    assert (
        by_column.on(["k", "K2"]).query().equalities
        == join.on("a.k2 = b.k2", "a.k2 = c.k2").query().equalities
    )
    assert join.on("b.v > a.v", how="inner").query() == join.on("b.v > a.v").query()
    rows = feed.df("a")
    for time in (rows.t, rows["t"], rows["T"]):
        (stream,) = Join(spark).stream("a", rows.filter("k > 0"), time=time)._streams
        assert str(stream.time) == "a.t"
    nested = rows.selectExpr("struct(t AS `at time`) AS event", "k")
    times = Join(spark).stream("a", nested, time=F.col("event.`at time`")).query
    with pytest.raises(QueryError, match="two or more streams"):
        times()


def test_what_is_not_taken_is_refused_at_that_call(spark, feed, join):
    rows = feed.df("a")
    nested = rows.select(F.struct("t").alias("s"))
    for time in (
        rows["t"] + F.expr("INTERVAL 1 DAY"),
        nested["s.t"],
        F.col("t").alias("at"),
        F.to_timestamp("v"),
        F.lit(1),
    ):
        with pytest.raises(QueryError, match=r"a column must be given by its name; got Column<.*withColumn"):
            Join(spark).stream("a", rows, time=time)
    with pytest.raises(
        QueryError, match=r"a predicate must be text; got Column<.*Hint: write on\('a.x = b.y'\)"
    ):
        join.on(F.col("a.k") == F.col("b.k"))
    with pytest.raises(QueryError, match=r"the name of a column must be text; got Column<"):
        join.on([F.col("k")])
    with pytest.raises(QueryError, match=r"a column must exist; got 'colour' in a"):
        join.on(["colour"])
    with pytest.raises(QueryError, match=r"must come after the streams that have them; got \['k'\] after 1"):
        Join(spark).stream("a", rows, time="t").on(["k"])
    with pytest.raises(
        QueryError, match=r"a join must be 'inner'; got 'left'. Hint: outer joins are not there"
    ):
        join.on("a.k = b.k", how="left")
    for item in (F.col("a.id"), ["a.id", F.col("a.id")]):
        with pytest.raises(QueryError, match=r"a select item must be text; got .* Hint: write select\('a.x'"):
            join.select(item)
    with pytest.raises(QueryError, match=r"got the name of a column, 'k'. Hint: .* write .on\(\['k'\]\)"):
        join.on("k")
    incomplete: Any = Join(spark).stream
    for left_out in ((rows,), ("a",)):
        with pytest.raises(
            QueryError, match=r"a name, and then a DataFrame; got .* write .stream\('orders', o"
        ):
            incomplete(*left_out, time="t")
    for method in ("cache", "persist", "checkpoint"):
        with pytest.raises(NoSuchMethodError, match=f"got {method}. Hint: leave it out"):
            getattr(join, method)
    writer: Any = join.writeStream
    with pytest.raises(NoSuchMethodError, match=r"got table. Hint: write .foreachBatch\(.*saveAsTable\("):
        writer.table("t")
    with pytest.raises(AttributeError, match="'JoinStreamWriter' object has no attribute 'stat'"):
        writer.stat()
    with pytest.raises(OptionError, match=r"got '1 second'. Hint: write .*processingTime='1 second'"):
        writer.trigger("1 second")
    with pytest.raises(OptionError, match=r"got 5. Hint: write .*processingTime='10 seconds'"):
        writer.trigger(5)
    with pytest.raises(OptionError, match=r"got 'maxFilesPerTrigger'. Hint: .* spark.readStream.option"):
        writer.option("maxFilesPerTrigger", 5)
    with pytest.raises(OptionError, match=r"or foreachBatch; got toTable. Hint: .*saveAsTable\('t'\)"):
        writer.toTable("t")
    with pytest.raises(OptionError, match=r"or foreachBatch; got foreach. Hint: write .foreachBatch"):
        writer.foreach(print)
    for trigger in ({"continuous": "1 second"}, {"realTime": "1 second"}):
        with pytest.raises(
            OptionError, match=r"processingTime, availableNow and once; got (continuous|realTime)="
        ):
            writer.trigger(**trigger)
    for named, message in (
        ({"format": "delta"}, "the format must be one of parquet, memory, console; got 'delta'"),
        ({"outputMode": "complete"}, "must be 'append'"),
        ({"queryName": ""}, "the name of a query must be text"),
        ({"mergeSchema": True}, "an option must be one that Midstream knows; got 'mergeSchema'"),
    ):
        with pytest.raises(OptionError, match=message):
            join.writeStream.start(**named)


def test_only_what_stopping_causes_counts_as_stopped():
    from py4j.protocol import Py4JError

    def raised(error: Exception, cause: Exception | None = None) -> Exception:
        try:
            raise error from cause
        except Exception as caught:
            return caught

    assert is_caused_by_stopping(Py4JError("cancelled"))
    assert is_caused_by_stopping(raised(RuntimeError("could not save"), Py4JError("cancelled")))
    assert not is_caused_by_stopping(raised(RuntimeError("could not save"), ValueError("7")))
    assert "cancelled" in str(BatchStopped("run 7"))
