"""Aggregates on Spark: the same windows through every sink, once, and Spark's own types and values."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import functions

from midstream import CheckpointError, Join, NoSuchMethodError, OptionError, QueryError, window
from midstream.engine.results import TIME
from midstream.storage.fsck import check as fsck
from midstream.storage.local import LocalStore
from midstream.storage.manifest_log import newest_manifest
from midstream.testing import Shape, accept, generate
from midstream.testing.aggregate_oracle import (
    aggregate_windows,
    assert_same_updates,
    assert_same_windows,
    last_updates,
    timed_results,
)
from tests.spark.driver_death import AROUND_THE_COMMIT, die_once_at_each, run_through

pytestmark = pytest.mark.spark

CALLS = (
    "count(*) AS n",
    "count(b.v) AS counted",
    "sum(b.v) AS total",
    "avg(b.v) AS mean",
    "min(b.v) AS least",
    "max(b.k2) AS most",
    "stddev(b.v) AS deviation",
    "var_pop(b.v) AS var",
    "count(DISTINCT b.k2) AS words",
    "approx_count_distinct(b.id) AS about",
    "median(b.v) AS middle",
    "percentile(b.v, 0.9) AS tail",
    "percentile_approx(b.v, 0.5) AS element",
    "first(b.v) AS first",
    "last(b.v) AS last",
    "collect_list(b.v) AS all",
)
EPOCHS = generate(dict.fromkeys("ab", Shape(rows=30, late=0.1, null_keys=0.1)), epochs=6, seed=1)


def grouped(spark, feed, *calls: str, every: str = "5 seconds") -> Join:
    pair = Join(spark)
    for name in "ab":
        pair = pair.stream(name, feed.df(name), time="t", lateness="5 seconds")
    joined = pair.on("a.k = b.k").within("10 seconds")
    return joined.groupBy("a.k2 AS word", window("10 seconds", every)).agg(*(calls or CALLS))


def check(join: Join, epochs, checkpoint, got: pa.Table) -> None:
    query = join.query()
    manifest = newest_manifest(LocalStore(str(checkpoint)))
    assert manifest is not None
    want = aggregate_windows(query, accept(query, epochs, None).tables(query), until=manifest.emitted)
    assert want.num_rows > 20
    assert_same_windows(got.cast(query.output_schema), want, query)


def start(join: Join, checkpoint):
    return join.writeStream.option("checkpointLocation", checkpoint).trigger(availableNow=True)


def test_windows_leave_once_through_any_sink_and_after_restarts(spark, feed, tmp_path):
    feed.add(*EPOCHS[:3])
    join, checkpoint, out = grouped(spark, feed), tmp_path / "checkpoint", tmp_path / "out"
    start(join, checkpoint).format("parquet").option("path", out).start().awaitTermination()
    # As with Spark, what the last watermark has passed is out at the end, and the rest stays.
    first = pq.read_table(out, partitioning=None)
    check(join, EPOCHS[:3], checkpoint, first)
    feed.add(EPOCHS[3])
    saved: list[pa.Table] = []
    failed: list[int] = []

    def save(df, batch):
        if not failed:
            failed.append(batch)
            raise RuntimeError("the user's own mistake")
        saved.append(df.toArrow())

    with pytest.raises(Exception, match="the user's own mistake"):
        start(join, checkpoint).foreachBatch(save).start().awaitTermination()
    start(join, checkpoint).foreachBatch(save).start().awaitTermination()
    check(join, EPOCHS[:4], checkpoint, pa.concat_tables([first.cast(saved[0].schema), *saved]))
    feed.add(*EPOCHS[4:])
    start(join, checkpoint).format("memory").queryName("windows").start().awaitTermination()
    last = spark.table("windows").toArrow()
    check(join, EPOCHS, checkpoint, pa.concat_tables([t.cast(last.schema) for t in (first, *saved, last)]))


def test_windows_leave_once_whenever_the_driver_dies(feed, spark, runner):
    feed.add(*EPOCHS)
    join = grouped(spark, feed)
    with die_once_at_each("after the step", *AROUND_THE_COMMIT, "before the commit") as died:
        assert run_through(lambda: runner.run(join)) == len(died) == 5
    check(join, EPOCHS, runner.checkpoint, runner.results())
    assert fsck(LocalStore(str(runner.checkpoint))).problems == ()


def test_updates_come_with_each_batch_and_after_restarts(spark, feed, tmp_path, capsys):
    feed.add(EPOCHS[0])
    join, checkpoint = grouped(spark, feed), tmp_path / "checkpoint"
    query = join.query()
    saved: list[tuple[int, pa.Table]] = []
    failed: list[int] = []

    def save(df, batch):
        saved.append((batch, df.toArrow()))
        if batch == 2 and not failed:
            failed.append(batch)
            raise RuntimeError("the user's own mistake")

    def starting():
        return start(join, checkpoint).outputMode("Update")

    for part in ([], EPOCHS[1:2], EPOCHS[2:3], [], EPOCHS[3:4]):
        feed.add(*part)
        running = starting().foreachBatch(save).start()
        if part == EPOCHS[2:3]:
            with pytest.raises(Exception, match="the user's own mistake"):
                running.awaitTermination()
        else:
            running.awaitTermination()
    assert [batch for batch, _ in saved] == [0, 1, 2, 2, 3]
    assert_same_windows(saved[2][1], saved[3][1], query)
    seen = query.joined_schema.append(pa.field(TIME, pa.int64())).empty_table()
    epochs = EPOCHS[:4]
    rows = dict.fromkeys("ab", 0)
    for batch, got in saved[:2] + saved[3:]:
        tables = accept(query, epochs[: batch + 1], None).tables(query)
        made = timed_results(query, tables, since=rows)
        assert_same_updates(got.cast(query.output_schema), made, seen, query)
        seen, rows = pa.concat_tables([seen, made]), {name: table.num_rows for name, table in tables.items()}
    feed.add(*EPOCHS[4:])
    starting().format("memory").queryName("updates").start().awaitTermination()
    updates = [table for _, table in saved] + [spark.table("updates").toArrow()]
    last = last_updates([table.cast(query.output_schema) for table in updates], query)
    want = aggregate_windows(query, accept(query, EPOCHS, None).tables(query))
    assert want.num_rows > 20
    assert_same_windows(last, want, query)
    # A join does not say the mode, and another definition would have that of the query.
    running.explain_replace(grouped(spark, feed, every="2 seconds"))
    told = capsys.readouterr().out
    assert "windows of results: 10 seconds every 5 seconds -> 10 seconds every 2 seconds\n" in told
    assert ("output mode" in told, "refused" in told.lower()) == (False, False)
    with pytest.raises(CheckpointError, match=r"outputMode was 'update'; got 'append'\. Hint"):
        start(join, checkpoint).foreachBatch(save).start()


def test_update_mode_is_refused_where_it_cannot_be(spark, feed, tmp_path):
    feed.add(EPOCHS[0])
    join = grouped(spark, feed)
    with pytest.raises(OptionError, match=r"got the parquet sink\. Hint: .*foreachBatch.* memory or console"):
        start(join, tmp_path / "c").outputMode("update").start(str(tmp_path / "out"), format="parquet")
    plain = Join(spark)
    for name in "ab":
        plain = plain.stream(name, feed.df(name), time="t")
    with pytest.raises(OptionError, match=r"a query in update mode must have aggregates.*Hint: leave"):
        plain.on("a.k = b.k").writeStream.format("console").start(outputMode="update")
    with pytest.raises(OptionError, match=r"must be 'append' or 'update'; got 'complete'\. Hint: in update"):
        join.writeStream.outputMode("complete")
    assert not (tmp_path / "c").exists()


def test_types_and_values_are_sparks_own(spark, feed, tmp_path):
    feed.add(*EPOCHS)
    join = grouped(spark, feed)
    start(join, tmp_path / "checkpoint").format("memory").queryName("mine").start().awaitTermination()
    mine = spark.table("mine")
    a, b = (feed_frame(spark, feed, name).alias(name) for name in "ab")
    near = functions.expr("a.k = b.k AND abs(timestampdiff(MICROSECOND, a.t, b.t)) <= 10000000")
    joined = a.join(b, near).withColumn("at", functions.greatest("a.t", "b.t"))
    calls = [functions.expr(call) for call in CALLS if not call.startswith(("first", "last"))]
    spoken = joined.groupBy(
        functions.col("a.k2").alias("word"), functions.window("at", "10 seconds", "5 seconds")
    ).agg(*calls)
    types = {field.name: field.dataType for field in spoken.schema}
    # What Spark knows of nulls is lost in files, its own included.
    assert {n: t for n, t in mine.dtypes if n in types} == dict(spoken.dtypes)
    assert join.dtypes == mine.dtypes
    # Spark draws its sketches by other hashes; what they estimate is checked elsewhere.
    names = [name for name in types if name not in ("about", "all", "word", "window")]
    sames = {"all": functions.array_sort("m.all").eqNullSafe(functions.array_sort("s.all"))}
    for name in names:
        one, other = functions.col(f"m.{name}"), functions.col(f"s.{name}")
        sames[name] = one.eqNullSafe(other)
        if types[name].typeName() == "double":
            near = functions.coalesce(functions.abs(one - other) < 1e-9, functions.lit(col=False))
            sames[name] = sames[name] | near
    differing = [functions.count_if(~same).alias(name) for name, same in sames.items()]
    both = mine.alias("m").join(spoken.alias("s"), ["word", "window"])
    (found,) = both.agg(functions.count("*").alias("both"), *differing).collect()
    assert found.asDict() == {"both": mine.count(), **dict.fromkeys(sames, 0)}
    assert found["both"] > 20


def feed_frame(spark, feed, name: str):
    """The rows of a stream that are in time, as a batch."""
    pair = grouped(spark, feed).query()
    return spark.createDataFrame(accept(pair, EPOCHS, None).tables(pair)[name])


def test_another_definition_is_refused_at_a_restart(spark, feed, tmp_path):
    feed.add(EPOCHS[0])
    checkpoint = tmp_path / "checkpoint"
    start(grouped(spark, feed), checkpoint).format("memory").queryName("x").start().awaitTermination()
    other = grouped(spark, feed, "count(*) AS n")
    with pytest.raises(
        CheckpointError, match=r"agg was \[.*; got \['count\(\*\) AS n'\]\. Hint: write it as it"
    ):
        start(other, checkpoint).format("memory").queryName("x").start()


@pytest.mark.parametrize(
    ("group", "calls", "message"),
    [
        (["a.k"], ["count(*) AS n"], "grouped by one window.*Hint: add one"),
        (
            [window("2 seconds"), window("3 seconds")],
            ["count(*) AS n"],
            "grouped by one window; got 2 windows. Hint: leave out all but one",
        ),
        ([window("1 month")], ["count(*) AS n"], "months and years"),
        ([window("5 seconds", "10 seconds")], ["count(*) AS n"], "at most their length apart"),
        ([window("5 seconds", time="a.k")], ["count(*) AS n"], "event times are a.t, b.t"),
        ([window("a.t", "5 seconds")], ["count(*) AS n"], r"time comes last.*time='a\.t'"),
        ([window("5 seconds")], ["count(*)"], r"one name.*write 'count\(\*\) AS a_name'"),
        ([window("5 seconds")], ["sum(a.k2) AS n"], "sum must be of a number"),
        ([window("5 seconds")], ["sum(a.k + 1) AS n"], "withColumn"),
        ([window("5 seconds")], ["kurtosis(a.k) AS n"], "the functions are"),
        ([window("5 seconds")], ["percentile(a.k, 2) AS n"], "from 0.0 to 1.0"),
        ([window("5 seconds")], ["percentile(a.k, array(0.1, 0.2)) AS n"], "one aggregate for each"),
        ([window("5 seconds")], ["count(*) AS n", "count(a.k) AS N"], "a name of its own"),
        ([window("5 seconds")], [], "agg must have an aggregate"),
    ],
)
def test_what_cannot_be_is_refused(spark, feed, group, calls, message):
    feed.add(EPOCHS[0])
    pair = grouped(spark, feed)
    plain = Join(spark)
    for name in "ab":
        plain = plain.stream(name, feed.df(name), time="t")
    with pytest.raises(QueryError, match=message):
        plain.on("a.k = b.k").groupBy(*group).agg(*calls).query()
    with pytest.raises(QueryError, match="leave out select"):
        pair.select("a.k")
    with pytest.raises(NoSuchMethodError, match="groupBy"):
        plain.agg("count(*) AS n")  # type: ignore[attr-defined]  # it is not there
    groups = plain.on("a.k = b.k").groupBy("a.k", window("5 seconds"))
    for call, hint in (
        ("sum", r"agg\('sum\("),
        ("pivot", "foreachBatch"),
        ("writeStream", r"agg\('count\(\*\) AS n'\)"),
        ("show", r"agg\('count\(\*\) AS n'\)"),
    ):
        with pytest.raises(NoSuchMethodError, match=hint):
            getattr(groups, call)
    assert not hasattr(groups, "anything_else")
