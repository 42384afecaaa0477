"""What the strategies draw from: key types with values equal across types, value columns, residuals."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa

TIMES = (pa.timestamp("us", tz="UTC"), pa.timestamp("us"), pa.timestamp("ms", tz="UTC"))
"""Types of event time columns; the values are whole seconds."""


@dataclass(frozen=True)
class Domain:
    """Types that compare with each other, each with values; equal values have the same position."""

    name: str
    columns: tuple[tuple[pa.DataType, tuple[Any, ...]], ...]


@dataclass(frozen=True)
class ValueColumn:
    """A column that only residuals and outputs use."""

    type: pa.DataType
    values: tuple[Any, ...]


def _moment(zone: Any) -> tuple[datetime, ...]:
    days = (datetime(2024, 1, 1), datetime(2024, 3, 31), datetime(1969, 12, 31, 23, 59, 59, 999999))  # noqa: DTZ001 - the zone follows
    return tuple(day.replace(tzinfo=zone) for day in days)


_SMALL = (0, 1, -1, 2, 100)
_EXACT = tuple(map(Decimal, ("0", "1", "-1", "2", "100")))
_FLOATS = (0.0, -0.0, float("nan"), 1.0, -1.0, 1.5, float("inf"), 2.0**53)
_DAYS = (date(2024, 1, 1), date(2024, 3, 31), date(1969, 12, 31))

DOMAINS = (
    Domain("integer", tuple((k, _SMALL) for k in (pa.int64(), pa.int32(), pa.int16(), pa.int8()))),
    Domain(
        "decimal",
        (
            (pa.decimal128(5, 2), (*_EXACT, Decimal("1.50"), Decimal("0.01"))),
            (pa.decimal128(12, 4), (*_EXACT, Decimal("1.5000"), Decimal("0.0001"))),
            (pa.decimal128(20, 0), (*_EXACT, Decimal(10) ** 19)),
            (pa.int32(), _SMALL),
            (pa.int64(), (*_SMALL, 2**63 - 1)),
        ),
    ),
    Domain(
        "double",
        (
            (pa.float64(), _FLOATS),
            (pa.float32(), _FLOATS),
            (pa.int32(), _SMALL),
            (pa.int64(), (*_SMALL, 2**53, 2**53 + 1)),
            (pa.decimal128(5, 2), (*_EXACT, Decimal("1.50"))),
        ),
    ),
    Domain(
        "string",
        tuple(
            (k, ("x", "", "X", "xy", "x\0", "straße", "a longer one than a word"))
            for k in (pa.string(), pa.large_string())
        ),
    ),
    Domain("binary", tuple((k, (b"x", b"", b"\0", b"\xff" * 9)) for k in (pa.binary(), pa.large_binary()))),
    Domain("boolean", ((pa.bool_(), (True, False)),)),
    Domain(
        "time",
        (
            (pa.date32(), _DAYS),
            (pa.timestamp("us", tz="UTC"), _moment(UTC)),
            (pa.timestamp("us"), _moment(None)),
        ),
    ),
)  # fmt: skip

VALUES = {
    "v": ValueColumn(pa.int32(), (0, 1, 2, 3, 5, -1, -7, None)),
    "w": ValueColumn(pa.decimal128(8, 2), (*map(Decimal, ("1.00", "0.50", "-3.25")), None)),
    "x": ValueColumn(pa.float64(), (0.0, 1.0, -0.0, float("nan"), float("-inf"), None)),
    "n": ValueColumn(pa.string(), ("ab", "AB", "", "a_b", "b%", None)),
    "f": ValueColumn(pa.bool_(), (True, False, None)),
}

RESIDUALS = (
    "{x}.v <= {y}.v",
    "{x}.v <> {y}.v",
    "{x}.v + {y}.v > {z}.v",
    "{x}.v % {y}.v = {z}.v % 2",
    "{x}.v / {y}.v >= 1",
    "{x}.v BETWEEN {y}.v - 2 AND {z}.v + 2",
    "{x}.v <=> {y}.v",
    "{x}.v IS NULL OR {y}.v > 0",
    "abs({x}.v - {y}.v) < 3",
    "coalesce({x}.v, 1) IN (1, 2, {y}.v)",
    "CASE WHEN {x}.v > 0 THEN {y}.v ELSE {z}.v END >= 0",
    "{x}.w * {y}.v > 0.75",
    "{x}.w < {y}.w + 1.5",
    "-{x}.w <> {y}.v",
    "{x}.x >= {y}.x",
    "{x}.x <=> {y}.x",
    "{x}.x + {y}.v > 0.5",
    "{x}.w < {y}.x",
    "lower({x}.n) = {y}.n",
    "{x}.n <= {y}.n",
    "{x}.n LIKE 'a\\\\_%' OR {y}.n LIKE '%\\\\%'",
    "length({x}.n) = {y}.v",
    "NOT ({x}.f AND {y}.f)",
    "{x}.f OR {y}.f",
    "({x}.f AND {y}.f) IS NOT NULL",
    "{x}.f <> {y}.f",
)
"""Conditions over two or three streams that mean the same in Spark and in DuckDB."""
