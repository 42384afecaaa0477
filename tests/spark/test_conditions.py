"""A residual passes exactly the rows for which Spark finds the same text true."""

from datetime import datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from midstream.engine.evaluate import filter_residual
from midstream.plan.layout import column_name
from midstream.query.predicate import read_predicate
from midstream.query.stream import ColumnRef, Stream
from midstream.spark.schema import arrow_schema
from midstream.values import Micros

pytestmark = pytest.mark.spark

MOMENT = datetime(2024, 3, 1, 12, 0)  # noqa: DTZ001  # Spark reads it in the session's zone
NAN = float("nan")
INTEGERS = ("int", [-4, 1, 2, 3, 7, None])
DECIMALS = ("decimal(10,2)", [Decimal("1.50"), Decimal("-2.00"), Decimal("3.00"), None])
SHORT_DECIMALS = ("decimal(8,1)", [Decimal("2.0"), Decimal("1.0"), Decimal("0.5"), Decimal("3.0"), None])
DOUBLES = ("double", [1.5, -2.0, 3.0, 0.0, -0.0, NAN, None])
FLOATS = ("float", [2.0, 1.0, 0.5, 3.0, NAN, None])
TEXTS = ("string", ["", "a", "Ab", "äÖ", "a%b", "ab\nc", None])
MORE_TEXTS = ("string", ["A", "ab", "ÄÖ", "a", None])

CASES: dict[str, tuple[tuple[tuple[str, list[Any]], ...], list[str]]] = {
    "integers": (
        (INTEGERS, INTEGERS, INTEGERS),
        [
            "a.x < b.x OR b.x <= c.x",
            "abs(a.x - b.x) < c.x",
            "a.x + b.x * 2 - c.x > 3",
            "a.x / nullable(b.x) >= c.x",
            "a.x % 3 = b.x % 3",
            "-a.x < b.x",
            "a.x BETWEEN b.x AND c.x",
            "a.x NOT BETWEEN b.x AND c.x",
            "a.x IN (b.x, c.x, 7)",
            "a.x IS NULL OR b.x > c.x",
            "NOT (a.x > b.x OR c.x IS NOT NULL)",
            "a.x <=> b.x OR a.x <=> c.x",
            "coalesce(a.x, b.x, 0) = c.x",
            "CASE WHEN a.x > b.x THEN a.x ELSE c.x END > 2",
            "CASE a.x WHEN b.x THEN 1 WHEN c.x THEN 2 END = 2",
            "if(a.x > b.x, b.x, a.x) = c.x",
            "a.x <> b.x OR a.x != c.x",
            "a.x = 1.5 * b.x",
            "a.x * 2e0 > b.x",
            "a.at - b.at < INTERVAL 3 SECONDS",
            "abs(a.x) + sqrt(b.x * b.x) > 5",
            "a.at + INTERVAL '2' SECOND >= b.at OR c.at >= TIMESTAMP '2024-03-01 12:00:02'",
            "a.at > b.at - INTERVAL 1 MINUTE",
            "(a.x > b.x) = (b.x > c.x)",
        ],
    ),
    "decimals": (
        (DECIMALS, SHORT_DECIMALS),
        ["a.x < b.x", "a.x + b.x > 2.5", "a.x * b.x = 3.0", "a.x - 1 = b.x", "abs(a.x) > b.x", "-a.x = b.x"],
    ),
    "doubles": (
        (DOUBLES, FLOATS),
        ["a.x < b.x", "NOT a.x <> b.x", "a.x + b.x > 2.5", "a.x * b.x = 3", "-a.x <= b.x",
         "a.x <=> b.x", "a.x > 1 OR b.x = 2"],
    ),
    "decimal and double": ((DECIMALS, DOUBLES), ["a.x < b.x", "NOT a.x <> b.x", "a.x + b.x > 2"]),
    "text": (
        (TEXTS, MORE_TEXTS),
        [
            "a.x < b.x",
            "lower(a.x) = lower(b.x)",
            "upper(a.x) <> b.x",
            "a.x LIKE 'a%' OR b.x LIKE '_'",
            "a.x LIKE 'a\\\\%b' OR b.x = 'A'",
            "a.x LIKE '%b_c' OR b.x LIKE 'Ä_'",
            "length(a.x) > length(b.x)",
            "NOT (a.x = '' OR b.x < a.x)",
        ],
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_conditions_are_true_when_spark_says_so(spark, case):
    kinds, conditions = CASES[case]
    names = "abc"[: len(kinds)]
    conditions = [condition.replace("nullable(b.x)", "nullif(b.x, 0)") for condition in conditions]
    frames = {}
    for number, (name, (kind, values)) in enumerate(zip(names, kinds, strict=True)):
        rows = [(value, MOMENT.replace(second=number + 2 * i)) for i, value in enumerate(values)]
        frames[name] = spark.createDataFrame(rows, f"x {kind}, at timestamp").coalesce(1)
        frames[name].createOrReplaceTempView(f"conditions_{name}")
    columns = ", ".join(f"{n}.x AS {n}_x, {n}.at AS {n}_at" for n in names)
    verdicts = ", ".join(f"({condition}) AS v{i}" for i, condition in enumerate(conditions))
    tables = ", ".join(f"conditions_{n} AS {n}" for n in names)
    table = spark.sql(f"SELECT {columns}, {verdicts} FROM {tables}").toArrow()  # noqa: S608
    streams = [Stream(n, arrow_schema(n, f), ColumnRef(n, ("at",)), Micros(0)) for n, f in frames.items()]
    for i, condition in enumerate(conditions):
        _, residuals = read_predicate(condition.replace("nullif(b.x, 0)", "b.x"), streams, "UTC")
        passed = [_passes(residual, table) for residual in residuals]
        got = [all(row) for row in zip(*passed, strict=True)]
        want = [bool(verdict) for verdict in table.column(f"v{i}").to_pylist()]
        assert got == want, condition
        assert any(want), condition


def _passes(residual, table: pa.Table) -> list[bool]:
    columns = {column_name(ref): table.column(f"{ref.stream}_{ref.path[0]}") for ref in residual.columns}
    return filter_residual(residual, columns).to_list()
