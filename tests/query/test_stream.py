import pytest

from midstream.errors import QueryError
from midstream.query.stream import ColumnRef, check_name, resolve
from tests.helpers import make_stream

STREAMS = [make_stream("orders"), make_stream("Pays")]


@pytest.mark.parametrize(
    ("parts", "resolved"),
    [
        (("orders", "i"), "orders.i"),
        (("ORDERS", "I"), "orders.i"),
        (("pays", "s", "K"), "Pays.s.k"),
        (("orders", "s", "deep", "er"), "orders.s.Deep.er"),
        (("orders", "odd name"), "orders.`odd name`"),
    ],
)
def test_names_resolve_as_in_spark(parts, resolved):
    assert str(resolve(STREAMS, parts)) == resolved


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        (("i",), r"named with its stream; got 'i'. Hint: write stream.i"),
        (("nope", "i"), "belong to one of the streams; got 'nope.i'. Hint: the streams are orders, Pays"),
        (("orders", "nope"), "a column must exist; got 'nope' in orders. Hint: orders has t, i"),
        (("orders", "s", "nope"), "a field must exist; got 'nope' in orders.s. Hint: orders.s has k, Deep"),
        (("orders", "i", "deeper"), "a field must exist; .* has no fields"),
    ],
)
def test_a_name_that_does_not_resolve_is_refused(parts, message):
    with pytest.raises(QueryError, match=message):
        resolve(STREAMS, parts)


def test_names_that_differ_only_in_case_resolve_only_exactly():
    stream = make_stream("a", {"t": STREAMS[0].schema.field("t").type, "K": "int64", "k": "int64"})
    assert resolve([stream], ("a", "K")) == ColumnRef("a", ("K",))
    assert resolve([stream], ("a", "k")) == ColumnRef("a", ("k",))
    ambiguous = make_stream("a", {"t": STREAMS[0].schema.field("t").type, "KEY": "int64", "Key": "int64"})
    with pytest.raises(QueryError, match="a column must exist"):
        resolve([ambiguous], ("a", "key"))


@pytest.mark.parametrize("name", ["", "1a", "a b", "a.b", "a-b", "a,b", "a#", None, 3, "a\n"])
def test_the_name_of_a_stream_must_be_a_word(name):
    with pytest.raises(QueryError, match="must be a word"):
        check_name(name, [])


def test_the_name_of_a_stream_must_be_unique():
    assert check_name("b", ["a"]) == "b"
    with pytest.raises(QueryError, match="a name of its own"):
        check_name("A", ["a"])
