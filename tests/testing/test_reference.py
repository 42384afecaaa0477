"""The definition of a join that is only there to be right: keys are equal as in Spark."""

from datetime import UTC, date, datetime
from decimal import Decimal

import pyarrow as pa
import pytest

from midstream.testing import accept, assert_same_rows, batch_join, naive_join
from midstream.testing.reference import equal
from tests.helpers import rows, small_query

NAN = float("nan")


@pytest.mark.parametrize(
    ("left", "right", "same"),
    [
        (1, Decimal("1.00"), True),
        (1, 1.0, True),
        (0.0, -0.0, True),
        (NAN, NAN, True),
        (NAN, 1, False),
        (None, None, False),
        (2**53 + 1, float(2**53), True),
        (date(2024, 1, 1), datetime(2024, 1, 1, tzinfo=UTC), True),
        (date(2024, 1, 1), datetime(2024, 1, 1, 1, tzinfo=UTC), False),
        ("x", "X", False),
        (b"", b"", True),
    ],
)
def test_keys_are_equal_as_in_spark(left, right, same):
    assert equal(left, right) is same
    assert equal(right, left) is same


def test_both_definitions_of_a_join_agree_on_an_example():
    query = small_query(["a.k = b.k"], default_window=5, select=["a.v", "b.v"])
    tables = {
        "a": rows((0, 1, 0, "x"), (0, None, 0, "no"), (None, 1, 0, "no")),
        "b": rows((5, 1, 0, "y"), (6, 1, 0, "far"), (0, 2, 0, "no"), (-5, 1, 0, "z")),
    }
    wanted = pa.table({"a_v": ["x", "x"], "b_v": ["y", "z"]})
    assert_same_rows(batch_join(query, tables), wanted)
    assert_same_rows(naive_join(query, tables), wanted)


def test_accepted_rows_may_come_from_files_with_finer_times_and_no_nulls():
    """As Parquet files that Spark has written are read by Arrow."""
    query = small_query(["a.k = b.k"], default_window=5)
    table = rows((1, 1, 0, "x"))
    fields = [field.with_nullable(False) for field in table.schema]
    fields[0] = pa.field("t", pa.timestamp("ns", "UTC"), nullable=False)
    epochs = [{"a": table, "b": table}, {"a": table.cast(pa.schema(fields)), "b": table}]
    accepted = accept(query, epochs).tables(query)
    assert accepted == {"a": pa.concat_tables([table] * 2), "b": pa.concat_tables([table] * 2)}
