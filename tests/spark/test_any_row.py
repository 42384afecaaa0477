"""No row ends a query on Spark, whether tasks or Spark read the source; errors of tasks say where."""

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from midstream import Join
from midstream.engine.evaluate import filter_residual
from midstream.errors import InternalError
from midstream.plan.layout import column_name
from midstream.query.predicate import read_predicate
from midstream.spark import parquet_source, row_source
from midstream.testing.random_streams import SECOND
from tests.helpers import make_stream
from tests.spark.runner import join_streams

pytestmark = pytest.mark.spark

ZONED, LOCAL = pa.timestamp("us", "UTC"), pa.timestamp("us")
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
NAN, INF = float("nan"), float("inf")
DAYS = [-(2**31), 2**31 - 1]
ENDS = [-(2**63), 2**63 - 1]
SOURCES = {"read by tasks": lambda df: df, "read by Spark": lambda df: df.where("true")}


def table(times: list[int | None]) -> pa.Table:
    """Rows that differ only in their time, and have what makes libraries panic in every column."""
    count = len(times)
    columns = {
        "t": pa.array(times, pa.int64()).cast(ZONED),
        "k": pa.array([1] * count),
        "headers": pa.array([[{"key": "h", "value": b"\xff"}]] * count, HEADERS),
        "day": pa.array((DAYS * count)[:count], pa.int32()).view(pa.date32()),
        "at": pa.array((ENDS * count)[:count]).cast(ZONED),
        "local": pa.array((ENDS * count)[:count]).cast(LOCAL),
        "x": pa.array(([NAN, -INF] * count)[:count]),
        "m": pa.array([[(1, b"\x00")]] * count, pa.map_(pa.int64(), pa.binary())),
    }
    return pa.table(columns)


@pytest.mark.parametrize("source", SOURCES)
def test_odd_rows_are_joined_and_kept_when_late(spark, feed, runner, tmp_path, source):
    now = 10 * SECOND
    feed.add(
        {name: table([now, now]) for name in "ab"},
        {"a": table([ENDS[0], 2, None]), "b": table([now + 1])},
        {name: table([now + 2]) for name in "ab"},
    )
    frames = {name: SOURCES[source](feed.df(name)) for name in "ab"}
    join = join_streams(spark, frames)
    join = join.on("a.k = b.k", "a.day <= b.local OR a.at <= b.at").within("5 seconds")
    query = runner.run(join.select("a.t", "a.day", "b.local"), lateRows=tmp_path / "late")
    assert [p["batchId"] for p in query.recentProgress] == [0, 1, 2]
    # Only the instants decide: as early as can be in the first row of each table, as late in the second.
    assert runner.results().num_rows == 3 + 1 + 5
    late = pa.concat_tables([pq.read_table(path) for path in sorted((tmp_path / "late").glob("*.parquet"))])
    kept = [json.loads(row) for row in late.column("row").to_pylist()]
    moments = ["-290308-12-21T19:59:05.224192+00:00", "1970-01-01T00:00:00.000002+00:00", None]
    assert [row["t"] for row in kept] == moments
    assert late.column("time").cast(pa.int64()).to_pylist() == [ENDS[0], 2, None]
    read = spark.read.parquet(str(tmp_path / "late")).selectExpr("unix_micros(time) AS t").collect()
    assert [row.t for row in read] == [ENDS[0], 2, None]
    assert [row["headers"] for row in kept] == [[{"key": "h", "value": "/w=="}]] * 3
    assert [row["day"] for row in kept][:2] == ["-5877641-06-23", "+5881580-07-11"]
    assert kept[1]["at"] == "+294247-01-10T04:00:54.775807+00:00"
    assert kept[0]["local"] == "-290308-12-21 19:59:05.224192"
    assert [row["x"] for row in kept][:2] == ["NaN", "-Infinity"]
    assert kept[0]["m"] == [{"key": 1, "value": "AA=="}]


def test_what_no_timestamp_holds_is_no_key_and_no_time(spark, feed, runner, tmp_path):
    """With casts that are Spark's to make: of dates to instants, and of local times to event times."""
    days = [*DAYS, 106_751_991, 0]
    locals_ = [*ENDS, 0, SECOND]
    a = pa.table(
        {
            "t": pa.array(locals_).cast(LOCAL),
            "k": pa.array([1, 2, 3, 4]),
            "day": pa.array(days, pa.int32()).view(pa.date32()),
        }
    )
    b = pa.table({"t": pa.array([0]).cast(LOCAL), "at": pa.array([0]).cast(ZONED), "k": pa.array([9])})
    feed.add({"a": a, "b": b})
    zone = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "+14:00")
    try:
        join = Join(spark).stream("a", feed.df("a"), time="t").stream("b", feed.df("b"), time="t")
        join = join.on("a.day = b.at").select("a.k")
        query = runner.run(join, lateRows=tmp_path / "late")
    finally:
        spark.conf.set("spark.sql.session.timeZone", zone)
    (progress,) = query.recentProgress
    counts = {"rows": 4, "late": 0, "nullTime": 2, "nullKey": 1, "future": 0}
    source = progress["sources"]["a"]
    assert {name: source[name] for name in counts} == counts


@pytest.mark.parametrize("source", SOURCES)
def test_a_panic_in_a_task_that_encodes_ends_the_query_with_an_error_that_says_where(
    spark, feed, runner, monkeypatch, source
):
    import polars as pl

    def fail(*_given: object) -> None:
        raise pl.exceptions.PanicException("canary-7f3a")

    feed.add(*({name: table([number * SECOND]) for name in "ab"} for number in range(2)))
    frames = {name: SOURCES[source](feed.df(name)) for name in "ab"}
    join = join_streams(spark, frames)
    join = join.on("a.k = b.k").select("a.k")
    with monkeypatch.context() as patched:
        for module in (parquet_source, row_source):
            patched.setattr(module, "encoded", fail)
        with pytest.raises(InternalError) as failure:
            runner.run(join)
    assert failure.value.must == "encoding rows must work with any rows"
    assert "a failure of Polars (panic) in " in str(failure.value)
    assert "(batch 0, stream " in str(failure.value)
    assert "canary" not in str(failure.value)
    runner.run(join)
    assert runner.results().num_rows == 4


CONDITIONS = [
    "a.day < b.day",
    "a.at <= b.at",
    "a.local >= b.local",
    "a.near <= b.local",
    "a.near - b.near < INTERVAL 1 DAY",
]


def test_conditions_over_dates_and_times_of_any_year_are_sparks(spark):
    """As far as Spark itself has an answer; where it stops with an overflow, ours is null."""
    days = [*DAYS, -719_163, 0, 2_932_897]
    micros = [*ENDS, -62_135_596_800_000_001, 0, 253_402_300_800_000_000]
    columns = {
        "day": pa.array(days, pa.int32()).view(pa.date32()),
        "near": pa.array([-53_375_995, -1, 0, 1, 53_375_995], pa.int32()).view(pa.date32()),
        "at": pa.array(micros).cast(ZONED),
        "local": pa.array(micros).cast(LOCAL),
    }
    kinds = {"t": ZONED, **{name: column.type for name, column in columns.items()}}
    streams = [make_stream(name, kinds) for name in "ab"]
    spark.createDataFrame(pa.table(columns)).createOrReplaceTempView("any_year")
    picked = ", ".join(f"{n}.{c} AS {n}_{c}" for n in "ab" for c in columns)
    verdicts = ", ".join(f"({condition}) AS v{i}" for i, condition in enumerate(CONDITIONS))
    found = spark.sql(f"SELECT {picked}, {verdicts} FROM any_year AS a, any_year AS b").toArrow()  # noqa: S608
    for i, condition in enumerate(CONDITIONS):
        (residual,) = read_predicate(condition, streams, "UTC")[1]
        given = {column_name(r): found.column(f"{r.stream}_{r.path[0]}") for r in residual.columns}
        want = found.column(f"v{i}").to_pylist()
        assert filter_residual(residual, given).to_list() == want, condition
        assert 0 < sum(want) < len(want)
