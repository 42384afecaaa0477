"""Keys compare as Spark itself compares them, and any payload passes through: Spark is the oracle."""

from datetime import date, datetime
from decimal import Decimal
from typing import Any

import pytest
from pyspark.sql import functions as F  # noqa: N812

from midstream import Join
from midstream.testing import assert_same_rows

pytestmark = pytest.mark.spark

MOMENT = datetime(2024, 3, 1, 12, 0)  # noqa: DTZ001  # Spark reads it in the session's zone
NAN = float("nan")
BIG = 2**53
"""One double is this and the next integer."""
KEYS: dict[str, tuple[tuple[str, str], tuple[list[Any], list[Any]]]] = {
    "integers of different widths": (("tinyint", "bigint"), ([1, 2, -3, None], [1, -3, 5, None])),
    "int and decimal": (
        ("int", "decimal(12,2)"),
        ([1, 2, 300, None], [Decimal("1.00"), Decimal("2.50"), None]),
    ),
    "decimals": (
        ("decimal(10,2)", "decimal(12,4)"),
        ([Decimal("1.50"), Decimal("2.00")], [Decimal("1.5000")]),
    ),
    "int and double": (("int", "double"), ([0, 1, 2], [0.0, -0.0, 1.0, 1.5, NAN])),
    "doubles": (("double", "double"), ([0.0, -0.0, NAN, 1.5, None], [-0.0, NAN, NAN, 1.5])),
    "floats and doubles": (("float", "double"), ([0.5, NAN, 0.1], [0.5, NAN, 0.1])),
    "strings": (
        ("string", "string"),
        (["", "a", "ä", "a long one of more than eight", None], ["", "ä", "A", None]),
    ),
    "dates": (("date", "date"), ([date(2024, 1, 1), date(1900, 1, 1)], [date(2024, 1, 1)])),
    "date and timestamp": (("date", "timestamp"), ([MOMENT.date()], [MOMENT, MOMENT.replace(hour=0)])),
    "timestamps": (("timestamp", "timestamp"), ([MOMENT, None], [MOMENT, MOMENT.replace(minute=1)])),
    "local timestamps": (("timestamp_ntz", "timestamp_ntz"), ([MOMENT, None], [MOMENT])),
    "local and zoned timestamps": (("timestamp_ntz", "timestamp"), ([MOMENT, None], [MOMENT])),
    "booleans": (("boolean", "boolean"), ([True, False, None], [False, False, None])),
    "binary": (("binary", "binary"), ([b"", b"a", b"\x00\x01"], [b"a", b"\x00\x01", b"\x00"])),
    "nested": (("int", "bigint"), ([1, 2, 3], [2, 3, 4])),
    "big": (("bigint", "double"), ([BIG, BIG + 1], [float(BIG)])),
}
"""The types of a key on both sides, and its values."""
COPIES = 2


def column(case: str) -> str:
    return case.replace(" ", "_")


@pytest.fixture(scope="module")
def sides(spark, tmp_path_factory):
    """Two tables with a key of each kind; where one has fewer values than another, nulls follow."""
    folder, found = tmp_path_factory.mktemp("sides"), {}
    count = COPIES * max(len(values) for _, sides in KEYS.values() for values in sides)
    for side in (0, 1):
        keys = [(sides[side] * COPIES + [None] * count)[:count] for _, sides in KEYS.values()]
        moments = [MOMENT.replace(second=number) for number in range(count)]
        kinds = ", ".join(f"{column(case)} {types[side]}" for case, (types, _) in KEYS.items())
        rows = list(zip(range(count), moments, *keys, strict=True))
        frame = spark.createDataFrame(rows, f"id int, at timestamp, {kinds}")
        deep = F.struct(F.struct(F.col("nested").alias("x")).alias("user"))
        frame = frame.withColumn("deep", deep).drop("nested").coalesce(1)
        path = str(folder / str(side))
        frame.write.parquet(path)
        spark.read.schema(frame.schema).parquet(path).createOrReplaceTempView(f"side_{side}")
        found[side] = (frame.schema, path)
    return found


def _same_as_spark(spark, sides, runner, condition, streams):
    join = Join(spark)
    for name, side in streams.items():
        schema, folder = sides[side]
        frame = spark.readStream.schema(schema).parquet(folder)
        join = join.stream(name, frame, time="at", lateness="1 day")
    join = join.on(condition).cross().select(*(f"{name}.id" for name in streams))
    runner.run(join)
    picked = ", ".join(f"{name}.id AS {name}_id" for name in streams)
    tables = ", ".join(f"side_{side} AS {name}" for name, side in streams.items())
    want = spark.sql(f"SELECT {picked} FROM {tables} WHERE {condition}").toArrow()  # noqa: S608
    assert_same_rows(runner.results(), want)
    return want.num_rows


@pytest.mark.parametrize("case", [case for case in KEYS if case not in ("nested", "big")])
def test_keys_of_any_type_compare_as_in_spark(spark, sides, runner, case):
    condition = f"a.{column(case)} = b.{column(case)}"
    assert _same_as_spark(spark, sides, runner, condition, {"a": 0, "b": 1}) > 0


def test_a_nested_field_is_a_key(spark, sides, runner):
    condition = "a.deep.user.x = b.deep.user.x"
    assert _same_as_spark(spark, sides, runner, condition, {"a": 0, "b": 1}) == 8


def test_big_integers_that_one_double_holds_apart_stay_apart(spark, sides, runner):
    condition = "a.big = b.big AND b.big = c.big AND a.big = c.big"
    assert _same_as_spark(spark, sides, runner, condition, {"a": 0, "b": 1, "c": 0}) == 16


def test_payload_of_any_type_comes_out_as_it_went_in(spark, tmp_path, runner):
    rows = spark.range(20).selectExpr(
        "id", "timestamp '2024-01-01' + make_dt_interval(0, 0, 0, id) AS at",
        "array(id, id + 1) AS list", "map('k', id) AS map",
        "struct(id AS n, cast(id AS string) AS s) AS deep",
        "cast(id AS decimal(20,3)) AS dec", "cast(cast(id AS string) AS binary) AS bin",
        "cast(null AS string) AS nothing",
        "cast('2024-01-01' AS date) AS day", "timestamp_ntz'2024-01-01 10:00:00' AS local",
        "cast(id AS smallint) AS small", "id % 2 = 0 AS even", "cast(id AS float) AS f",
        "named_struct('a.b', id) AS `odd name.d`",
    )  # fmt: skip
    rows.coalesce(1).write.parquet(str(tmp_path / "wide"))
    frame = spark.readStream.schema(rows.schema).parquet(str(tmp_path / "wide"))
    join = Join(spark).stream("a", frame, time="at").stream("b", frame, time="at").on("a.id = b.id")
    runner.run(join)
    got = spark.read.parquet(str(runner.out))
    kinds = [f.dataType.simpleString() for f in got.schema.fields]
    assert kinds == [f.dataType.simpleString() for f in rows.schema.fields] * 2
    names = rows.columns
    want = rows.toDF(*(f"a_{n}" for n in names)).alias("a").join(rows.alias("b"), F.expr("a.a_id = b.id"))
    assert_same_rows(got.toArrow(), want.toDF(*got.columns).toArrow())
