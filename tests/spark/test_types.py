"""Keys compare as Spark itself compares them, and any payload passes through: Spark is the oracle."""

from datetime import date, datetime
from decimal import Decimal

import pytest
from pyspark.sql import functions as F  # noqa: N812

from midstream import Join
from midstream.testing import assert_same_rows

pytestmark = pytest.mark.spark

MOMENT = datetime(2024, 3, 1, 12, 0)  # noqa: DTZ001  # Spark reads it in the session's zone
NAN = float("nan")
KEYS = {
    "integers of different widths": ("tinyint", "bigint", [1, 2, -3, None], [1, -3, 5, None]),
    "int and decimal": ("int", "decimal(12,2)", [1, 2, 300, None], [Decimal("1.00"), Decimal("2.50"), None]),
    "decimals": ("decimal(10,2)", "decimal(12,4)", [Decimal("1.50"), Decimal("2.00")], [Decimal("1.5000")]),
    "int and double": ("int", "double", [0, 1, 2], [0.0, -0.0, 1.0, 1.5, NAN]),
    "doubles": ("double", "double", [0.0, -0.0, NAN, 1.5, None], [-0.0, NAN, NAN, 1.5]),
    "floats and doubles": ("float", "double", [0.5, NAN, 0.1], [0.5, NAN, 0.1]),
    "strings": (
        "string",
        "string",
        ["", "a", "ä", "a long one of more than eight", None],
        ["", "ä", "A", None],
    ),
    "dates": ("date", "date", [date(2024, 1, 1), date(1900, 1, 1)], [date(2024, 1, 1)]),
    "date and timestamp": ("date", "timestamp", [MOMENT.date()], [MOMENT, MOMENT.replace(hour=0)]),
    "timestamps": ("timestamp", "timestamp", [MOMENT, None], [MOMENT, MOMENT.replace(minute=1)]),
    "local timestamps": ("timestamp_ntz", "timestamp_ntz", [MOMENT, None], [MOMENT]),
    "local and zoned timestamps": ("timestamp_ntz", "timestamp", [MOMENT, None], [MOMENT]),
    "booleans": ("boolean", "boolean", [True, False, None], [False, False, None]),
    "binary": ("binary", "binary", [b"", b"a", b"\x00\x01"], [b"a", b"\x00\x01", b"\x00"]),
}


def _feed(spark, tmp_path, name, kind, values, repeat=2):
    rows = [
        (number, value, MOMENT.replace(second=number % 60)) for number, value in enumerate(values * repeat)
    ]
    frame = spark.createDataFrame(rows, f"id int, x {kind}, at timestamp")
    frame.withColumn("deep", F.struct(F.struct("x").alias("user"))).write.parquet(str(tmp_path / name))
    schema = spark.read.parquet(str(tmp_path / name)).schema
    return spark.readStream.schema(schema).parquet(str(tmp_path / name))


def _same_as_spark(spark, tmp_path, runner, condition, streams, kinds):
    join = Join(spark)
    for name in streams:
        join = join.stream(name, _feed(spark, tmp_path, name, *kinds[name]), time="at", lateness="1 day")
        spark.read.parquet(str(tmp_path / name)).createOrReplaceTempView(f"batch_{name}")
    join = join.on(condition).cross().select(*(f"{name}.id" for name in streams))
    runner.run(join)
    picked = ", ".join(f"{name}.id AS {name}_id" for name in streams)
    tables = ", ".join(f"batch_{name} AS {name}" for name in streams)
    want = spark.sql(f"SELECT {picked} FROM {tables} WHERE {condition}").toArrow()  # noqa: S608
    assert_same_rows(runner.results(), want)
    return want.num_rows


@pytest.mark.parametrize("case", KEYS)
def test_keys_of_any_type_compare_as_in_spark(spark, tmp_path, runner, case):
    left, right, left_values, right_values = KEYS[case]
    kinds = {"a": (left, left_values), "b": (right, right_values)}
    assert _same_as_spark(spark, tmp_path, runner, "a.x = b.x", "ab", kinds) > 0


def test_a_nested_field_is_a_key(spark, tmp_path, runner):
    kinds = {"a": ("int", [1, 2, 3]), "b": ("bigint", [2, 3, 4])}
    assert _same_as_spark(spark, tmp_path, runner, "a.deep.user.x = b.deep.user.x", "ab", kinds) == 8


def test_big_integers_that_one_double_holds_apart_stay_apart(spark, tmp_path, runner):
    big = 2**53
    kinds = {"a": ("bigint", [big, big + 1]), "b": ("double", [float(big)]), "c": ("bigint", [big, big + 1])}
    condition = "a.x = b.x AND b.x = c.x AND a.x = c.x"
    assert _same_as_spark(spark, tmp_path, runner, condition, "abc", kinds) == 16


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
