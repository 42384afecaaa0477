"""The comparison of tables finds every difference, and shows it."""

from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from midstream.testing import assert_same_rows
from midstream.testing.compare import difference
from tests.helpers import TIME

NAN = float("nan")


def test_rows_are_compared_as_a_multiset():
    table = pa.table(
        {
            "x": pa.array([1.5, NAN, None, -0.0]),
            "s": pa.array(
                [{"l": [1, None]}, {"l": None}, None, {"l": []}], pa.struct([("l", pa.list_(pa.int8()))])
            ),
            "d": pa.array([Decimal("1.50")] * 4),
        }
    )
    assert_same_rows(table, table.take([3, 1, 0, 2]))
    assert_same_rows(table.slice(0, 0), table.slice(4, 0))


@pytest.mark.parametrize(
    ("got", "want", "message"),
    [
        (
            [1, 1, 2],
            [1, 2, 2],
            "3 rows are wanted, 3 were got; 1 missing, 1 surplus\n  missing: x=2\n  surplus: x=1",
        ),
        (
            [1],
            [1, None, None],
            "3 rows are wanted, 1 were got; 2 missing, 0 surplus\n  missing 2 times: x=null",
        ),
        (list(range(9)), [], "and 4 more that are surplus"),
    ],
)
def test_what_differs_is_shown(got, want, message):
    with pytest.raises(AssertionError) as error:
        assert_same_rows(
            pa.table({"x": pa.array(got, pa.int64())}), pa.table({"x": pa.array(want, pa.int64())})
        )
    assert message in str(error.value)


KINDS: dict[str, tuple[pa.DataType, list[object]]] = {
    "n": (pa.int64(), [0, 1, -1, None]),
    "x": (pa.float64(), [0.0, -0.0, NAN, 1.5, None]),
    "t": (pa.string(), ["", "null", "a", None]),
    "b": (pa.binary(), [b"", b"a", None]),
    "d": (pa.decimal128(5, 2), [Decimal("1.50"), Decimal("0.00"), None]),
    "at": (TIME, [0, 1, None]),
    "f": (pa.bool_(), [True, False, None]),
    "l": (pa.list_(pa.int64()), [[], [1], [None], None]),
    "nothing": (pa.null(), [None]),
}


@given(st.data(), st.lists(st.sampled_from(list(KINDS)), min_size=1, max_size=3, unique=True))
def test_tables_pass_exactly_if_they_have_no_difference(data, names):
    def draw() -> pa.Table:
        row = st.tuples(*(st.sampled_from(KINDS[name][1]) for name in names))
        drawn = data.draw(st.lists(row, max_size=4))
        return pa.table(
            [pa.array([row[i] for row in drawn], KINDS[n][0]) for i, n in enumerate(names)], names
        )

    got, want = draw(), draw()
    surplus, missing = difference(got, want)
    try:
        assert_same_rows(got, want)
    except AssertionError:
        assert surplus or missing
    else:
        assert not surplus
        assert not missing
    order = pa.array(data.draw(st.permutations(range(got.num_rows))), pa.int64())
    assert_same_rows(got, got.take(order))


def test_other_columns_are_a_difference():
    with pytest.raises(AssertionError, match=r"columns must be \['y'\]; got \['x'\]"):
        assert_same_rows(pa.table({"x": [1]}), pa.table({"y": [1]}))


def test_zero_and_minus_zero_are_two_values():
    with pytest.raises(AssertionError, match="1 missing, 1 surplus"):
        assert_same_rows(pa.table({"x": [0.0]}), pa.table({"x": [-0.0]}))
