"""Residuals give what Spark gives."""

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from midstream.engine.evaluate import filter_residual
from midstream.query.predicate import read_predicate
from tests.helpers import COLUMNS, make_stream

STREAMS = [make_stream(name) for name in "ab"]
NAN, INF = float("nan"), float("inf")
MORNING = datetime(2024, 3, 1, 8, tzinfo=UTC)


def passes(text: str, a: dict[str, Any], b: dict[str, Any]) -> bool:
    """Whether a pair of rows passes; columns that are not given are null."""
    (residual,) = read_predicate(text, STREAMS, "UTC")[1]
    columns = {
        str(ref): pa.chunked_array(
            [pa.array([{"a": a, "b": b}[ref.stream].get(ref.path[0])], COLUMNS[ref.path[0]])]
        )
        for ref in residual.columns
    }
    return bool(filter_residual(residual, columns).to_list()[0])


TRUE = [
    ("a.i < b.i", {"i": 1}, {"i": 2}),
    ("a.i <= b.l", {"i": 2}, {"l": 2}),
    ("a.i > b.d", {"i": 2}, {"d": Decimal("1.99")}),
    ("a.i >= b.x", {"i": 2}, {"x": 2.0}),
    ("a.i <> b.i", {"i": 1}, {"i": 2}),
    ("a.l + 0 = b.l", {"l": 2**62}, {"l": 2**62}),
    ("(a.l + b.l) IS NULL", {"l": 2**63 - 1}, {"l": 1}),
    ("(a.l * b.l) IS NULL", {"l": 2**62}, {"l": 2**62}),
    ("a.l + b.l = 9223372036854775807", {"l": 2**63 - 2}, {"l": 1}),
    ("a.i - b.i = -3", {"i": 1}, {"i": 4}),
    ("a.i / b.i = 0.5e0", {"i": 1}, {"i": 2}),
    ("a.i % b.i = -1", {"i": -7}, {"i": 3}),
    ("a.i % b.i = 1", {"i": 7}, {"i": -3}),
    ("a.x % b.x = -1.5e0", {"x": -5.5}, {"x": 2.0}),
    ("a.d + b.d = 0.30", {"d": Decimal("0.10")}, {"d": Decimal("0.20")}),
    ("a.d * b.d = 0.0102", {"d": Decimal("0.01")}, {"d": Decimal("1.02")}),
    ("a.d * b.i > 0.99", {"d": Decimal("0.25")}, {"i": 4}),
    ("a.d - b.i = -0.75", {"d": Decimal("0.25")}, {"i": 1}),
    ("a.d + b.x > 1.2e0", {"d": Decimal("0.25")}, {"x": 1.0}),
    ("-a.d = b.d", {"d": Decimal("0.25")}, {"d": Decimal("-0.25")}),
    ("abs(a.i - b.i) = 3", {"i": 1}, {"i": 4}),
    ("a.x > b.x", {"x": NAN}, {"x": INF}),
    ("a.x + 0 = b.x", {"x": NAN}, {"x": NAN}),
    ("a.x + 0 = b.x", {"x": 0.0}, {"x": -0.0}),
    ("a.i <=> b.i", {}, {}),
    ("a.i <=> b.i", {"i": 1}, {"i": 1}),
    ("NOT (a.i <=> b.i)", {"i": 1}, {}),
    ("a.x <=> b.x", {"x": NAN}, {"x": NAN}),
    ("a.f OR b.f", {"f": True}, {}),
    ("NOT (a.f AND b.f)", {"f": False}, {}),
    ("(a.f AND b.f) IS NULL", {"f": True}, {}),
    ("(a.f OR b.f) IS NULL", {"f": False}, {}),
    ("(a.f AND b.f) IS NOT NULL", {"f": False}, {}),
    ("a.i IS NULL OR b.i > 0", {}, {}),
    ("(a.i / b.i) IS NULL", {"i": 1}, {"i": 0}),
    ("(a.x / b.x) IS NULL", {"x": 1.0}, {"x": -0.0}),
    ("(a.i % b.i) IS NULL", {"i": 1}, {"i": 0}),
    ("a.i IN (1, b.i)", {"i": 1}, {}),
    ("a.i IN (b.i, 7)", {"i": 7}, {"i": 2}),
    ("(a.i NOT IN (1, b.i)) IS NULL", {"i": 2}, {}),
    ("a.i BETWEEN b.i AND 5", {"i": 5}, {"i": 5}),
    ("coalesce(a.i, b.l, 3) = 3", {}, {}),
    ("coalesce(a.i, b.d) = 0.5", {}, {"d": Decimal("0.50")}),
    ("CASE WHEN a.f THEN b.i ELSE 2 END = 2", {}, {"i": 1}),
    ("CASE a.i WHEN 1 THEN b.i WHEN 2 THEN 20 END = 20", {"i": 2}, {"i": 1}),
    ("CASE WHEN a.f THEN b.i END IS NULL", {"f": False}, {"i": 1}),
    ("IF(a.f, b.i, 0.5) = 3", {"f": True}, {"i": 3}),
    ("lower(a.n) = b.n", {"n": "ÄB"}, {"n": "äb"}),
    ("upper(a.n) = upper(b.n)", {"n": "ab"}, {"n": "Ab"}),
    ("length(a.n) = b.i", {"n": "äöü"}, {"i": 3}),
    ("sqrt(a.x) = b.x", {"x": 4.0}, {"x": 2.0}),
    ("a.n < b.n", {"n": "Z"}, {"n": "a"}),
    ("a.n LIKE 'x%' OR b.f", {"n": "xyz"}, {}),
    ("a.n LIKE '_' OR b.f", {"n": "é"}, {}),
    ("a.n LIKE '%' OR b.f", {"n": "two\nlines"}, {}),
    ("a.n LIKE 'a.c' OR b.f", {"n": "a.c"}, {}),
    ("a.n LIKE '50\\\\%' OR b.f", {"n": "50%"}, {}),
    ("a.n LIKE '' OR b.f", {"n": ""}, {}),
    ("a.b < b.b", {"b": b"\x01"}, {"b": b"\xff"}),
    ("a.day < b.day", {"day": date(2024, 1, 1)}, {"day": date(2024, 1, 2)}),
    ("a.day > DATE '2024-01-01' OR b.f", {"day": date(2024, 1, 2)}, {}),
    ("a.t = b.t + INTERVAL 1 HOUR", {"t": MORNING.replace(hour=9)}, {"t": MORNING}),
    ("INTERVAL 1 HOUR + a.t > b.t", {"t": MORNING}, {"t": MORNING}),
    ("a.t - b.t < INTERVAL '61' MINUTES", {"t": MORNING.replace(hour=9)}, {"t": MORNING}),
    ("abs(a.t - b.t) = INTERVAL 1 HOUR", {"t": MORNING}, {"t": MORNING.replace(hour=9)}),
    ("a.t > TIMESTAMP '2024-03-01 07:59:59' OR b.f", {"t": MORNING}, {}),
    ("a.local = TIMESTAMP_NTZ '2024-03-01 08:00:00' OR b.f", {"local": MORNING.replace(tzinfo=None)}, {}),
    ("a.f = b.f OR NULL", {"f": True}, {"f": True}),
]
FALSE = [
    ("a.i < b.i", {"i": 1}, {}),
    ("a.i <> b.i", {"i": 1}, {}),
    ("a.i + 0 = b.i", {}, {}),
    ("NOT (a.i < b.i)", {"i": 1}, {}),
    ("a.x < b.x", {"x": NAN}, {"x": INF}),
    ("a.x <> b.x", {"x": NAN}, {"x": NAN}),
    ("a.f AND b.f OR a.f", {"f": False}, {}),
    ("NOT (a.f OR b.f)", {"f": False}, {}),
    ("a.i / b.i > 0", {"i": 1}, {"i": 0}),
    ("a.i NOT IN (1, b.i)", {"i": 2}, {}),
    ("a.d + b.d = 0.31", {"d": Decimal("0.10")}, {"d": Decimal("0.20")}),
    ("a.n LIKE 'x' OR b.f", {"n": "xyz"}, {}),
    ("a.n LIKE 'a.c' OR b.f", {"n": "abc"}, {}),
    ("a.n LIKE '50\\\\%' OR b.f", {"n": "500"}, {}),
    ("a.n LIKE 'x' OR b.f", {"n": "x\n"}, {}),
    ("a.n LIKE '%' OR b.f", {}, {}),
    ("CASE WHEN a.f THEN b.i END = 1", {}, {"i": 1}),
    ("a.f = b.f OR NULL", {"f": True}, {"f": False}),
]


@pytest.mark.parametrize(("text", "a", "b"), TRUE, ids=lambda v: v if isinstance(v, str) else "")
def test_the_pair_passes(text, a, b):
    assert passes(text, a, b)


@pytest.mark.parametrize(("text", "a", "b"), FALSE, ids=lambda v: v if isinstance(v, str) else "")
def test_the_pair_does_not_pass(text, a, b):
    assert not passes(text, a, b)


DAYS = [-(2**31), -106_751_992, -106_751_991, -719_163, 0, 2_932_896, 106_751_991, 106_751_992, 2**31 - 1]
TIMES = [-(2**63), -(2**62), -1, 0, 1, 2**62, 2**63 - 1]
DAY, HOUR = 86_400_000_000, 3_600_000_000
INT64 = range(-(2**63), 2**63)


def over_pairs(text: str, left: pa.Array, right: pa.Array) -> list[bool]:
    """Which pairs of values pass, for all pairs, with the left value changing slowest."""
    (residual,) = read_predicate(text, STREAMS, "UTC")[1]
    pairs = [(i, j) for i in range(len(left)) for j in range(len(right))]
    columns_of = {"a": left.take([i for i, _ in pairs]), "b": right.take([j for _, j in pairs])}
    columns = {str(ref): pa.chunked_array([columns_of[ref.stream]]) for ref in residual.columns}
    return filter_residual(residual, columns).to_list()


def dates(days: list[int]) -> pa.Array:
    return pa.array(days, pa.int32()).view(pa.date32())


def times(micros: list[int], column: str) -> pa.Array:
    return pa.array(micros, pa.int64()).cast(COLUMNS[column])


@pytest.mark.parametrize("sign", ["<", "<=", "=", "<>", ">=", ">", "<=>"])
@pytest.mark.parametrize("column", ["day", "t", "local"])
def test_dates_and_times_of_any_year_compare(column, sign):
    values = DAYS if column == "day" else TIMES
    array = dates(values) if column == "day" else times(values, column)
    compare = {"<": int.__lt__, "<=": int.__le__, "=": int.__eq__, "<=>": int.__eq__, "<>": int.__ne__,
               ">=": int.__ge__, ">": int.__gt__}[sign]  # fmt: skip
    text = f"(a.{column} {sign} b.{column}) = true"
    assert over_pairs(text, array, array) == [compare(a, b) for a in values for b in values]


def test_a_date_beyond_timestamps_compares_with_no_time():
    passed = over_pairs("a.day <= b.local", dates(DAYS), times(TIMES, "local"))
    assert passed == [a * DAY in INT64 and a * DAY <= b for a in DAYS for b in TIMES]
    nulls = over_pairs("(a.day <= b.local) IS NULL", dates(DAYS), times(TIMES, "local"))
    assert nulls == [a * DAY not in INT64 for a in DAYS for _ in TIMES]
    chosen = over_pairs("coalesce(a.day, b.local) IS NULL", dates(DAYS), times([0], "local"))
    assert chosen == [False] * len(DAYS)
    either = over_pairs(
        "CASE WHEN true THEN a.day ELSE b.local END IS NULL", dates(DAYS), times([0], "local")
    )
    assert either == [a * DAY not in INT64 for a in DAYS]


def test_differences_beyond_intervals_are_null():
    passed = over_pairs("a.day - b.day > INTERVAL 1 DAY", dates(DAYS), dates(DAYS))
    assert passed == [(a - b) * DAY in INT64 and a - b > 1 for a in DAYS for b in DAYS]
    for column in ("t", "local"):
        array = times(TIMES, column)
        passed = over_pairs(f"a.{column} - b.{column} < INTERVAL 1 HOUR", array, array)
        assert passed == [a - b in INT64 and a - b < HOUR for a in TIMES for b in TIMES]
        passed = over_pairs(f"abs(a.{column} - b.{column}) >= INTERVAL 1 HOUR", array, array)
        assert passed == [a - b in INT64 and HOUR <= abs(a - b) < 2**63 for a in TIMES for b in TIMES]


@pytest.mark.parametrize("column", ["t", "local"])
def test_sums_beyond_timestamps_are_null(column):
    array = times(TIMES, column)
    later = over_pairs(f"a.{column} + INTERVAL 1 HOUR > b.{column}", array, array)
    assert later == [a + HOUR in INT64 and a + HOUR > b for a in TIMES for b in TIMES]
    earlier = over_pairs(f"a.{column} - INTERVAL 1 HOUR < b.{column}", array, array)
    assert earlier == [a - HOUR in INT64 and a - HOUR < b for a in TIMES for b in TIMES]


@pytest.mark.parametrize(("unit", "micros"), [("s", 10**6), ("ms", 10**3)])
def test_times_in_coarser_units_compare_within_the_range_of_microseconds(unit, micros):
    values = [-(2**63), -1, 0, 1, 2**63 - 1]
    array = pa.array(values, pa.int64()).cast(pa.timestamp(unit, "UTC"))
    passed = over_pairs("a.t <= b.t", array, times(TIMES, "t"))
    assert passed == [a * micros in INT64 and a * micros <= b for a in values for b in TIMES]


def test_the_smallest_bigint_has_no_opposite():
    assert passes("(-a.l) IS NULL OR b.f", {"l": -(2**63)}, {})
    assert passes("abs(a.l) IS NULL OR b.f", {"l": -(2**63)}, {})
    assert passes("-a.l = b.l", {"l": -(2**63) + 1}, {"l": 2**63 - 1})
