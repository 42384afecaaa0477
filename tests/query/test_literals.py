"""Literals of predicates have the values and types that Spark gives them, or are refused."""

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

import pyarrow as pa
import pytest

from midstream.errors import QueryError
from midstream.query.expression import Constant
from midstream.query.operator_types import INTERVAL
from midstream.query.sql import parse
from midstream.query.translate import Translator
from midstream.query.types import TIMESTAMP


def _read(text):
    return Translator((), "Europe/Berlin", text)(parse(text, "a literal"))


@pytest.mark.parametrize(
    ("text", "value", "kind"),
    [
        ("7", 7, pa.int64()),
        ("9223372036854775807", 2**63 - 1, pa.int64()),
        ("1.50", Decimal("1.50"), pa.decimal128(3, 2)),
        ("0.001", Decimal("0.001"), pa.decimal128(3, 3)),
        ("1e3", 1000.0, pa.float64()),
        ("7L", 7, pa.int64()),
        ("7S", 7, pa.int64()),
        ("1.5D", 1.5, pa.float64()),
        ("99999999999999999999D", 1e20, pa.float64()),
        ("'a word'", "a word", pa.string()),
        ("DATE '2024-07-02'", date(2024, 7, 2), pa.date32()),
        ("TIMESTAMP '2024-07-02 03:04:05'", datetime(2024, 7, 2, 1, 4, 5, tzinfo=UTC), TIMESTAMP),
        ("TIMESTAMP '2024-07-02 03:04:05+00:00'", datetime(2024, 7, 2, 3, 4, 5, tzinfo=UTC), TIMESTAMP),
        ("TIMESTAMP_NTZ '2024-07-02 03:04:05'", datetime(2024, 7, 2, 3, 4, 5), pa.timestamp("us")),  # noqa: DTZ001
        ("INTERVAL 90 SECONDS", timedelta(seconds=90), INTERVAL),
    ],
)
def test_a_literal_has_a_value_and_a_type(text, value, kind):
    assert _read(text) == Constant(value, kind)


@pytest.mark.parametrize(
    "text", ["9223372036854775808", "99999999999999999999L", "1.5L", "cast('1' as int)", "cast(1 as string)"]
)
def test_other_literals_are_refused(text):
    with pytest.raises(QueryError, match="must use only the listed operators"):
        _read(text)


@pytest.mark.parametrize("text", ["DATE '2024-13-01'", "TIMESTAMP 'yesterday'"])
def test_a_date_or_time_must_be_valid(text):
    with pytest.raises(QueryError, match="must be a valid date or time"):
        _read(text)
