"""Projecting columns of a source: values that do not fit become null, and no value is an error."""

import pyarrow as pa
import pytest

from midstream.engine.encode import SourceColumn, project, time_column
from midstream.query.stream import ColumnRef
from midstream.query.types import LOCAL_TIMESTAMP, TIMESTAMP

ENDS = [-(2**63), -1, 0, 1, 2**63 - 1]
DAY = 86_400_000_000


def projected(values: pa.Array, kind: pa.DataType | None, *, time: bool = False) -> list[int | None]:
    name = time_column("a") if time else "a#0"
    column = project(pa.table({"x": values}), SourceColumn(name, ColumnRef("a", ("x",)), kind), "a")
    assert column.type == (pa.int64() if time else kind)
    micros: list[int | None] = column.cast(pa.int64()).to_pylist()
    return micros


@pytest.mark.parametrize("zone", [None, "UTC"])
@pytest.mark.parametrize(("unit", "micros"), [("s", 10**6), ("ms", 10**3), ("us", 1)])
def test_a_time_that_does_not_fit_is_null(unit, micros, zone):
    values = pa.array([*ENDS, None]).cast(pa.timestamp(unit, zone))
    expected = [end * micros if -(2**63) <= end * micros < 2**63 else None for end in ENDS]
    assert projected(values, None, time=True) == [*expected, None]
    kind = LOCAL_TIMESTAMP if zone is None else TIMESTAMP
    assert projected(values, kind) == [*expected, None]


def test_nanoseconds_are_rounded_down_to_microseconds():
    values = pa.array([-1, 1_999, 2_000, -(2**63)]).cast(pa.timestamp("ns", "UTC"))
    expected = [-1, 1, 2, -(2**63) // 1000]
    assert projected(values, None, time=True) == projected(values, TIMESTAMP) == expected


@pytest.mark.parametrize("kind", [LOCAL_TIMESTAMP, TIMESTAMP])
def test_a_date_beyond_timestamps_is_null(kind):
    days = [-(2**31), -106_751_992, -106_751_991, 0, 106_751_991, 106_751_992, 2**31 - 1, None]
    values = pa.array(days, pa.int32()).view(pa.date32())
    inside = [day is not None and abs(day) <= 106_751_991 for day in days]
    expected = [
        day * DAY if day is not None and fits else None for day, fits in zip(days, inside, strict=True)
    ]
    assert projected(values, kind) == expected
