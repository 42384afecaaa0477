import pytest

from midstream.errors import QueryError
from midstream.query.predicate import read_predicate
from tests.helpers import make_stream

STREAMS = [make_stream(name) for name in "abc"]

NOT_LISTED = "must use only the listed operators"
NOT_COMPARABLE = "must have types that compare"
NOT_EXACT = "must have types that it can calculate exactly"
NOT_ONE_EXPRESSION = "must be (valid SQL|one expression|the text of one)"

REFUSED = {
    "": NOT_ONE_EXPRESSION,
    "  ": NOT_ONE_EXPRESSION,
    ";": NOT_ONE_EXPRESSION,
    "a.i = b.i; drop table x": NOT_ONE_EXPRESSION,
    "a.i = b.i or": NOT_ONE_EXPRESSION,
    "a.i == ": NOT_ONE_EXPRESSION,
    "a.`i = b.i": NOT_ONE_EXPRESSION,
    "a.i between b.i": NOT_ONE_EXPRESSION,
    "select 1": NOT_LISTED,
    "(select 1)": NOT_LISTED,
    "create table x as select 1": NOT_LISTED,
    "a.i in (select b.i from b)": NOT_LISTED,
    "exists(select 1)": NOT_LISTED,
    "a.i = (select max(i) from b)": NOT_LISTED,
    "a.i > any (select 1)": NOT_LISTED,
    "rand() < a.i + b.i": NOT_LISTED,
    "uuid() = a.n": NOT_LISTED,
    "current_timestamp() > a.t": NOT_LISTED,
    "reflect('java.lang.System', 'exit', a.i) = b.i": NOT_LISTED,
    "java_method('x', 'y', a.n) = b.n": NOT_LISTED,
    "transform(a.arr, x -> x + b.i) is null": NOT_LISTED,
    "row_number() over (order by a.i) = b.i": NOT_LISTED,
    "sum(a.i) > b.i": NOT_LISTED,
    "explode(a.arr) = b.i": NOT_LISTED,
    "date_add(a.day, b.i) > b.day": NOT_LISTED,
    "a.n || b.n = 'x'": NOT_LISTED,
    "a.n rlike b.n": NOT_LISTED,
    "a.i & b.i > 0": NOT_LISTED,
    "cast(a.i as string) = b.n": NOT_LISTED,
    "a.i::string = b.n": NOT_LISTED,
    "a.i = :p and b.i = 1": NOT_LISTED,
    "floor(a.x) < b.x": NOT_LISTED,
    "99999999999999999999 > a.i + b.i": NOT_LISTED,
    "a.arr[0] = b.i": NOT_LISTED,
    "i = b.i": "must be named with its stream",
    "nope.i = b.i": "must belong to one of the streams",
    "a.nope = b.i": "a column must exist",
    "a.s.nope = b.i": "a field must exist",
    "a.arr < b.arr": "columns of simple types",
    "a.s < b.s": "columns of simple types",
    "a.arr = b.arr": NOT_COMPARABLE,
    "a.i = b.n": NOT_COMPARABLE,
    "a.n < b.i": NOT_COMPARABLE,
    "a.f > b.i": NOT_COMPARABLE,
    "a.day < b.t": NOT_COMPARABLE,
    "coalesce(a.i, b.n) = 1": NOT_COMPARABLE,
    "a.d / b.d > 1": NOT_EXACT,
    "a.d % b.i = 1": NOT_EXACT,
    "a.n + b.n = 1": NOT_EXACT,
    "a.t + b.t = a.t": NOT_EXACT,
    "a.t - b.day > interval 1 day": NOT_EXACT,
    "a.t > b.t + interval 1 month": "months and years have no fixed length",
    "a.t > timestamp 'yesterday' and b.i > a.i": "must be a valid date or time",
    "a.n like b.n": "pattern of LIKE must be a text in quotes",
    "case when a.i then b.i end = 1": "WHEN must have a boolean",
    "if(a.i, b.i, 1) = 2": "WHEN must have a boolean",
    "-a.n < b.n": "- must have a number",
    "abs(a.n) < b.i": "abs must have a number",
    "lower(a.i) = b.n": "lower must have a string",
    "not (a.i + b.i)": "not must have a boolean",
    "a.f and (a.i + b.i) > 0 or b.i": "or must have a boolean",
    "a.i + b.i": "must be true or false",
    "a.i": "must be true or false",
    "a.i > 1": "two or more streams",
    "1 = 1": "two or more streams",
    "true": "two or more streams",
    "a.i = a.l": "two or more streams",
}


@pytest.mark.parametrize(("text", "message"), REFUSED.items(), ids=map(repr, REFUSED))
def test_other_predicates_are_refused(text, message):
    with pytest.raises(QueryError, match=message):
        read_predicate(text, STREAMS, "UTC")


@pytest.mark.parametrize(
    "text",
    ["(" * 400 + "a.i > b.i" + ")" * 400, " and ".join(["a.i > b.i"] * 3000), "not " * 3000 + "a.f <> b.f"],
    ids=["parentheses", "conjuncts", "negations"],
)
def test_a_predicate_that_is_nested_too_deeply_is_refused(text):
    with pytest.raises(QueryError, match="nested less deeply"):
        read_predicate(text, STREAMS, "UTC")


@pytest.mark.parametrize("text", [None, 3, b"a.i = b.i", ["a.i = b.i"]])
def test_only_text_is_a_predicate(text):
    with pytest.raises(QueryError, match="must be the text of one expression"):
        read_predicate(text, STREAMS, "UTC")


@pytest.mark.parametrize(
    ("text", "equalities", "residuals"),
    [
        ("a.i = b.l", ["a.i = b.l"], 0),
        ("A.I == B.L", ["a.i = b.l"], 0),
        ("(a.i = b.i) and ((b.s.k = c.`odd name`))", ["a.i = b.i", "b.s.k = c.`odd name`"], 0),
        ("a.i = b.i and a.d < b.d and a.f or c.f", [], 1),
        ("a.i = b.i and (a.d < b.d or a.d > c.d)", ["a.i = b.i"], 1),
        ("a.i = b.i + 1", [], 1),
        ("a.i <=> b.i", [], 1),
        ("a.i <> b.i", [], 1),
        ("a.day = b.local", ["a.day = b.local"], 0),
        ("a.x = b.d", ["a.x = b.d"], 0),
        ("a.t between b.t - interval 5 minutes and b.t + interval '1' hour", [], 1),
        ("a.n like '%x' and a.n = b.n", None, None),
        ("case a.i when 1 then b.i else 2 end = 1", [], 1),
        ("a.i in (1, b.i, null)", [], 1),
        ("a.f is not true or b.f", [], 1),
        ("abs(a.t - b.t) < interval 10 seconds", [], 1),
        ("sqrt(a.x) < b.i", [], 1),
        ("a.b = b.b and a.b < b.b", ["a.b = b.b"], 1),
    ],
)
def test_equalities_and_residuals_are_separated(text, equalities, residuals):
    if equalities is None:
        with pytest.raises(QueryError, match="two or more streams"):
            read_predicate(text, STREAMS, "UTC")
        return
    read_equalities, read_residuals = read_predicate(text, STREAMS, "UTC")
    assert ([str(e) for e in read_equalities], len(read_residuals)) == (equalities, residuals)


def test_columns_and_streams_of_a_residual():
    (residual,) = read_predicate("a.i + b.i > a.i and c.i <> a.i", STREAMS, "UTC")[1][:1]
    assert [str(ref) for ref in residual.columns] == ["a.i", "b.i"]
    assert residual.streams == {"a", "b"}
