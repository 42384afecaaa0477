import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from midstream.errors import QueryError
from midstream.inline import InlineJoin
from midstream.query.build import build_query
from midstream.query.window import imply_windows
from midstream.values import Micros
from tests.helpers import TIME, make_query, make_stream, small_query


def key_streams(**kinds: pa.DataType):
    return [make_stream(name, {"t": TIME, "k": kind}) for name, kind in kinds.items()]


def test_a_join_needs_two_streams():
    with pytest.raises(QueryError, match=r"two or more streams; got a. Hint: add streams"):
        make_query("a", [])


def test_streams_must_be_connected_unless_it_is_a_cross_join():
    with pytest.raises(QueryError, match="nothing between a, b and c, d"):
        make_query("abcd", ["a.i = b.i", "c.i = d.i"])
    assert len(make_query("abcd", ["a.i = b.i", "c.i = d.i"], cross=True).classes) == 2


def test_equalities_with_a_common_column_are_one_class_with_ids_in_their_order():
    query = make_query("abcd", ["a.i = b.i", "c.l = d.l", "b.i = c.i", "a.n = d.n"])
    assert [str(c) for c in query.classes] == ["a.i = b.i = c.i", "c.l = d.l", "a.n = d.n"]
    assert query.classes_of(frozenset("d")) == {1, 2}


def test_a_later_equality_may_merge_two_classes():
    query = make_query("abcd", ["a.i = b.i", "c.i = d.i", "b.i = c.i"])
    assert [sorted(c.streams) for c in query.classes] == [["a", "b", "c", "d"]]


def test_all_columns_of_a_class_must_compare():
    streams = key_streams(a=pa.decimal128(38, 0), b=pa.float64(), c=pa.decimal128(38, 38))
    assert build_query(streams, ["a.k = b.k", "b.k = c.k"]).classes[0].type == pa.float64()
    streams = key_streams(a=pa.decimal128(30, 0), b=pa.int64(), c=pa.decimal128(38, 19))
    with pytest.raises(QueryError, match=r"types that all compare; got a.k decimal"):
        build_query(streams, ["a.k = b.k", "b.k = c.k"])


def test_a_class_in_doubles_checks_integers_again():
    streams = key_streams(a=pa.int64(), b=pa.int64(), c=pa.float64())
    query = build_query(streams, ["a.k = b.k", "b.k = c.k"])
    assert [residual.text for residual in query.residuals] == ["a.k = b.k"]
    assert not build_query(streams, ["a.k = c.k", "b.k = c.k"]).residuals


def test_a_class_of_instants_checks_dates_and_local_times_again():
    streams = key_streams(a=pa.date32(), b=pa.timestamp("us"), c=TIME)
    query = build_query(streams, ["a.k = b.k", "b.k = c.k"])
    assert [residual.text for residual in query.residuals] == ["a.k = b.k"]


def test_integers_beyond_doubles_join_through_a_double_as_in_spark():
    beyond_doubles = 2**53 + 1
    query = build_query(key_streams(a=pa.int64(), b=pa.float64()), ["a.k = b.k"])
    join = InlineJoin(query)
    results = join.run_epoch(
        {
            "a": pa.table({"t": pa.array([0], TIME), "k": [beyond_doubles]}),
            "b": pa.table({"t": pa.array([0], TIME), "k": [float(beyond_doubles)]}),
        }
    )
    assert results.num_rows == 1


@pytest.mark.parametrize(
    ("select", "names"),
    [
        (["a.i", "b.i AS other"], ["a_i", "other"]),
        (["A.I"], ["a_i"]),
        (["a.s.k", "b.s"], ["a_s_k", "b_s"]),
        (["a.`odd name`"], ["a_odd name"]),
        (["a.i as x", "a.i as y"], ["x", "y"]),
    ],
)
def test_outputs_are_named_after_stream_and_column(select, names):
    assert [o.name for o in make_query("ab", ["a.i = b.i"], select=select).outputs] == names


def test_without_select_every_column_is_an_output():
    query = make_query("ab", ["a.i = b.i"])
    assert len(query.outputs) == 2 * len(query.streams[0].schema)
    star = make_query("ab", ["a.i = b.i"], select=["b.*", "a.i"])
    assert star.output_schema.names == [*(f"b_{n}" for n in query.streams[1].schema.names), "a_i"]


@pytest.mark.parametrize(
    ("item", "message"),
    [
        ("a.i + 1", "must be stream.column or stream.column AS name"),
        ("count(*)", "must be stream.column"),
        ("1", "must be stream.column"),
        ("*", "must follow the name of a stream"),
        ("nope.*", "must follow the name of a stream"),
        ("i", "named with its stream"),
        ("a.nope", "a column must exist"),
        ("", "the text of one expression"),
        ("a.i; a.l", "one expression"),
    ],
)
def test_a_select_item_must_be_a_column(item, message):
    with pytest.raises(QueryError, match=message):
        make_query("ab", ["a.i = b.i"], select=[item])


def test_names_of_outputs_must_be_unique_regardless_of_case():
    with pytest.raises(QueryError, match=r"a name of its own; got 'X' for a.i and for b.i"):
        make_query("ab", ["a.i = b.i"], select=["a.i as x", "b.i as X"])


def test_windows_close_by_the_shortest_path():
    windows = imply_windows(
        "abcd", None, {("a", "b"): Micros(5), ("c", "b"): Micros(10), ("a", "c"): Micros(100)}
    )
    assert windows.widths == (("a", "b", 5), ("a", "c", 15), ("b", "c", 10))
    assert (windows.width("c", "a"), windows.width("a", "d")) == (15, None)
    default_window = imply_windows("abc", Micros(7), {("a", "b"): Micros(3)})
    assert default_window.widths == (("a", "b", 3), ("a", "c", 7), ("b", "c", 7))


def test_the_stream_with_the_narrowest_window_to_others_is_first():
    windows = imply_windows(
        "abcde", None, {("a", "b"): Micros(1), ("b", "c"): Micros(5), ("c", "d"): Micros(2)}
    )
    assert windows.narrowest_first("ab") == ("b", "a")
    # Windows between the given streams do not count, nor does their order.
    assert windows.narrowest_first("abc") == ("c", "a", "b")
    assert windows.narrowest_first("bac") == ("c", "b", "a")
    assert windows.narrowest_first("ae") == ("a", "e")
    assert windows.narrowest_first("e") == ("e",)
    assert windows.narrowest_first("badc") == ("b", "a", "d", "c")


@given(
    st.dictionaries(
        st.sampled_from([("a", "b"), ("b", "c"), ("c", "d"), ("a", "d"), ("b", "d")]), st.integers(0, 20)
    ),
    st.none() | st.integers(0, 30),
    st.lists(st.integers(0, 40), min_size=4, max_size=4),
)
def test_closing_the_windows_changes_no_result(stated, default_window, times):
    time_of = dict(zip("abcd", times, strict=True))

    def is_within(widths):
        return all(abs(time_of[x] - time_of[y]) <= width for (x, y), width in widths.items())

    closed = {(x, y): width for x, y, width in imply_windows("abcd", default_window, stated).widths}
    stated_widths = {}
    for x, y in np.array(np.meshgrid(list("abcd"), list("abcd"))).T.reshape(-1, 2).tolist():
        if x < y and ((x, y) in stated or default_window is not None):
            stated_widths[x, y] = stated.get((x, y), default_window)
    assert is_within(stated_widths) == is_within(closed)


def test_the_pairs_that_are_named_are_the_fewest_that_would_bound_all():
    on = ["a.k = b.k", "b.k = c.k", "c.k = d.k"]
    query = small_query(on, "abcd", pairs={("a", "b"): Micros(5)})
    assert query.windows.unbounded(query.names) == (("a", "c"), ("a", "d"))
    more = {("a", "b"): Micros(5), ("a", "c"): Micros(5), ("a", "d"): Micros(5)}
    assert small_query(on, "abcd", pairs=more).windows.unbounded(query.names) == ()
