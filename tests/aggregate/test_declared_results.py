"""What a user's aggregate gives is of the declared type, or an error; nothing is changed in silence."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

from midstream.aggregate.declared_results import as_declared
from midstream.errors import AggregateError
from tests.helpers import TIME

NOON = datetime(2026, 3, 2, 12)  # noqa: DTZ001  # a local time
PAIR = pa.struct([("x", pa.int64()), ("y", pa.string())])
NUMBERS = [pa.int8(), pa.int64(), pa.float32(), pa.float64(), pa.decimal128(8, 2)]


@pytest.mark.parametrize(
    ("value", "declared", "expected"),
    [
        *((2, kind, 2) for kind in NUMBERS),
        *((np.int32(2), kind, 2) for kind in NUMBERS),
        *((None, kind, None) for kind in (*NUMBERS, pa.string(), PAIR)),
        (1.5, pa.float64(), 1.5),
        (np.float32(1.5), pa.float64(), 1.5),
        (0.1, pa.float32(), np.float32(0.1)),
        (math.inf, pa.float32(), math.inf),
        (2**53, pa.float64(), 2.0**53),
        (Decimal("1.2"), pa.decimal128(5, 2), Decimal("1.20")),
        (np.bool_(True), pa.bool_(), True),
        ("a", pa.string(), "a"),
        (b"a", pa.binary(), b"a"),
        (NOON.date(), pa.date32(), NOON.date()),
        (np.datetime64("2026-03-02"), pa.date32(), NOON.date()),
        (NOON, TIME, NOON.replace(tzinfo=UTC)),
        (NOON, pa.timestamp("us"), NOON),
        (np.datetime64(NOON, "us"), pa.timestamp("us"), NOON),
        (timedelta(1), pa.duration("us"), timedelta(1)),
        ([1, None], pa.list_(pa.int64()), [1, None]),
        (np.array([1.5]), pa.list_(pa.float64()), [1.5]),
        ({"a": 1}, pa.map_(pa.string(), pa.int64()), [("a", 1)]),
        ([("a", np.int64(1))], pa.map_(pa.string(), pa.int64()), [("a", 1)]),
        ((1, "a"), PAIR, {"x": 1, "y": "a"}),
        ({"y": "a"}, PAIR, {"x": None, "y": "a"}),
        (pa.scalar(3), pa.int64(), 3),
        (pa.array([3]), pa.list_(pa.int64()), [3]),
    ],
)
def test_a_value_of_the_declared_type_is_taken(value, declared, expected):
    found = as_declared(value, declared)
    assert found.type == declared
    assert found.as_py() == expected


@pytest.mark.parametrize(
    ("value", "declared"),
    [
        (1.5, pa.int32()),
        (-2.9, pa.int64()),
        (2.0, pa.int64()),
        (np.float64(1.5), pa.int64()),
        (pa.scalar(1.5), pa.int64()),
        (True, pa.int64()),
        (1, pa.bool_()),
        (300, pa.int8()),
        (2**63, pa.int64()),
        (2**53 + 1, pa.float64()),
        (1e300, pa.float32()),
        (10**400, pa.float64()),
        (Decimal("1.5"), pa.float64()),
        (1.5, pa.decimal128(5, 2)),
        (Decimal("1.234"), pa.decimal128(5, 2)),
        (NOON, pa.date32()),
        (date(2026, 3, 2), TIME),
        (NOON.replace(tzinfo=UTC), pa.timestamp("us")),
        (np.datetime64(NOON, "ns"), TIME),
        ("1", pa.int64()),
        (1, pa.string()),
        (b"a", pa.string()),
        ("a", pa.binary()),
        ([1.5], pa.list_(pa.int64())),
        ("ab", pa.list_(pa.string())),
        ({"a": 1.5}, pa.map_(pa.string(), pa.int64())),
        ([1], pa.map_(pa.string(), pa.int64())),
        ({"x": 1.5}, PAIR),
        ({"z": 1}, PAIR),
        ((1,), PAIR),
        (object(), pa.int64()),
    ],
)
def test_a_value_of_another_type_is_refused(value, declared):
    with pytest.raises(AggregateError, match=r"must be of the type that was declared; got .*, which"):
        as_declared(value, declared)
