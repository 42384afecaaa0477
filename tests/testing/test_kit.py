"""The test kit itself is right."""

from datetime import UTC, date, datetime
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from midstream.query.build import build_query
from midstream.testing import Shape, assert_same_rows, batch_join, generate, naive_join, stream
from midstream.testing.compare import difference
from midstream.testing.reference import equal
from tests.helpers import TIME, make_query, make_stream, rows, small_query

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
    query = small_query(["a.k = b.k"], everywhere=5, select=["a.v", "b.v"])
    tables = {
        "a": rows((0, 1, 0, "x"), (0, None, 0, "no"), (None, 1, 0, "no")),
        "b": rows((5, 1, 0, "y"), (6, 1, 0, "far"), (0, 2, 0, "no"), (-5, 1, 0, "z")),
    }
    wanted = pa.table({"a_v": ["x", "x"], "b_v": ["y", "z"]})
    assert_same_rows(batch_join(query, tables), wanted)
    assert_same_rows(naive_join(query, tables), wanted)


def test_the_oracle_checks_residuals_with_the_meaning_of_spark():
    query = make_query("ab", ["a.i = b.i", "a.l % b.l = 1 OR a.n LIKE '50\\\\%'"], select=["a.l", "b.l"])

    def table(*lines):
        columns = {n: [line.get(n) for line in lines] for n in query.streams[0].schema.names}
        return pa.table(columns, schema=query.streams[0].schema)

    a = table({"t": 0, "i": 1, "l": 7, "n": "500"}, {"t": 0, "i": 1, "l": 9, "n": "50%"})
    b = table({"t": 0, "i": 1, "l": 0}, {"t": 0, "i": 1, "l": 3})
    wanted = pa.table({"a_l": [7, 9, 9], "b_l": [3, 0, 3]})
    assert_same_rows(batch_join(query, {"a": a, "b": b}), wanted)


def test_the_oracle_compares_each_pair_in_its_own_type():
    kinds = {"a": pa.int64(), "b": pa.int64(), "c": pa.float64()}
    streams = [make_stream(name, {"t": TIME, "k": kind}) for name, kind in kinds.items()]
    query = build_query(streams, ["a.k = b.k", "b.k = c.k"], select=["a.k"])
    values: dict[str, list[float]] = {"a": [2**53, 2**53 + 1], "b": [2**53 + 1], "c": [float(2**53)]}
    tables = {n: pa.table({"t": pa.array([0] * len(v), TIME), "k": v}) for n, v in values.items()}
    assert batch_join(query, tables).column(0).to_pylist() == [2**53 + 1]
    assert naive_join(query, tables).column(0).to_pylist() == [2**53 + 1]


def test_generated_streams_depend_on_the_seed_only_and_do_what_they_are_told():
    shape = Shape(
        rows=400, hot=0.5, late=0.1, null_keys=0.1, null_times=0.1, duplicates=0.1, silent=frozenset({1})
    )
    shapes = {"a": shape, "b": Shape()}
    one, two, other = (generate(shapes, 3, seed) for seed in (1, 1, 2))
    assert one == two != other
    first, silent = one[0]["a"], one[1]["a"]
    assert first.schema == stream("a", shape).schema
    assert silent.num_rows == 0
    assert 0 < first.column("t").null_count < 100
    assert 0 < first.column("k").null_count < 100
    assert first.column("k").to_pylist().count(0) > 150
    assert len(set(first.column("id").to_pylist())) < 400
