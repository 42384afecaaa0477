"""Columns of a source as they enter: what does not fit counts as not there, and no value is an error."""

import pyarrow as pa
import pytest

from midstream.engine.encode import SourceColumn, project, time_column
from midstream.query.stream import ColumnRef
from midstream.query.types import LOCAL_TIMESTAMP, TIMESTAMP

ENDS = [-(2**63), -1, 0, 1, 2**63 - 1]
DAY = 86_400_000_000


def projected(values: pa.Array, kind: pa.DataType | None, *, time: bool = False) -> list[int | None]:
    name = time_column("a") if time else "a#0"
    got = project(pa.table({"x": values}), SourceColumn(name, ColumnRef("a", ("x",)), kind), "a")
    assert got.type == (pa.int64() if time else kind)
    micros: list[int | None] = got.cast(pa.int64()).to_pylist()
    return micros


@pytest.mark.parametrize("zone", [None, "UTC"])
@pytest.mark.parametrize(("unit", "micros"), [("s", 10**6), ("ms", 10**3), ("us", 1)])
def test_a_time_that_does_not_fit_is_none(unit, micros, zone):
    values = pa.array([*ENDS, None]).cast(pa.timestamp(unit, zone))
    want = [end * micros if -(2**63) <= end * micros < 2**63 else None for end in ENDS]
    assert projected(values, None, time=True) == [*want, None]
    kind = LOCAL_TIMESTAMP if zone is None else TIMESTAMP
    assert projected(values, kind) == [*want, None]


def test_of_nanoseconds_only_whole_microseconds_count():
    values = pa.array([-1, 1_999, 2_000, -(2**63)]).cast(pa.timestamp("ns", "UTC"))
    want = [-1, 1, 2, -(2**63) // 1000]
    assert projected(values, None, time=True) == projected(values, TIMESTAMP) == want


@pytest.mark.parametrize("kind", [LOCAL_TIMESTAMP, TIMESTAMP])
def test_a_date_that_no_timestamp_holds_is_no_key(kind):
    days = [-(2**31), -106_751_992, -106_751_991, 0, 106_751_991, 106_751_992, 2**31 - 1, None]
    values = pa.array(days, pa.int32()).view(pa.date32())
    inside = [day is not None and abs(day) <= 106_751_991 for day in days]
    want = [day * DAY if day is not None and fits else None for day, fits in zip(days, inside, strict=True)]
    assert projected(values, kind) == want
