import pytest

from midstream.errors import QueryError
from midstream.query.predicate import read_predicate
from tests.helpers import make_stream

STREAMS = [make_stream(name) for name in "abc"]

LISTED = "must use only the listed operators"
COMPARE = "must have types that compare"
EXACTLY = "must have types that it can calculate exactly"
ONE = "must be (valid SQL|one expression|the text of one)"

REFUSED = {
    "": ONE,
    "  ": ONE,
    ";": ONE,
    "a.i = b.i; drop table x": ONE,
    "a.i = b.i or": ONE,
    "a.i == ": ONE,
    "a.`i = b.i": ONE,
    "a.i between b.i": ONE,
    "select 1": LISTED,
    "(select 1)": LISTED,
    "create table x as select 1": LISTED,
    "a.i in (select b.i from b)": LISTED,
    "exists(select 1)": LISTED,
    "a.i = (select max(i) from b)": LISTED,
    "a.i > any (select 1)": LISTED,
    "rand() < a.i + b.i": LISTED,
    "uuid() = a.n": LISTED,
    "current_timestamp() > a.t": LISTED,
    "reflect('java.lang.System', 'exit', a.i) = b.i": LISTED,
    "java_method('x', 'y', a.n) = b.n": LISTED,
    "transform(a.arr, x -> x + b.i) is null": LISTED,
    "row_number() over (order by a.i) = b.i": LISTED,
    "sum(a.i) > b.i": LISTED,
    "explode(a.arr) = b.i": LISTED,
    "date_add(a.day, b.i) > b.day": LISTED,
    "a.n || b.n = 'x'": LISTED,
    "a.n rlike b.n": LISTED,
    "a.i & b.i > 0": LISTED,
    "cast(a.i as string) = b.n": LISTED,
    "a.i::string = b.n": LISTED,
    "a.i = :p and b.i = 1": LISTED,
    "floor(a.x) < b.x": LISTED,
    "99999999999999999999 > a.i + b.i": LISTED,
    "a.arr[0] = b.i": LISTED,
    "i = b.i": "must be named with its stream",
    "nope.i = b.i": "must belong to one of the streams",
    "a.nope = b.i": "a column must exist",
    "a.s.nope = b.i": "a field must exist",
    "a.arr < b.arr": "columns of simple types",
    "a.s < b.s": "columns of simple types",
    "a.arr = b.arr": COMPARE,
    "a.i = b.n": COMPARE,
    "a.n < b.i": COMPARE,
    "a.f > b.i": COMPARE,
    "a.day < b.t": COMPARE,
    "coalesce(a.i, b.n) = 1": COMPARE,
    "a.d / b.d > 1": EXACTLY,
    "a.d % b.i = 1": EXACTLY,
    "a.n + b.n = 1": EXACTLY,
    "a.t + b.t = a.t": EXACTLY,
    "a.t - b.day > interval 1 day": EXACTLY,
    "a.t > b.t + interval 1 month": "must be a duration",
    "a.t > timestamp 'yesterday' and b.i > a.i": "must be a valid date or time",
    "a.n like b.n": "pattern of LIKE must be a literal",
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
def test_what_is_not_on_the_list_is_refused(text, message):
    with pytest.raises(QueryError, match=message):
        read_predicate(text, STREAMS, "UTC")


@pytest.mark.parametrize(
    "text",
    ["(" * 400 + "a.i > b.i" + ")" * 400, " and ".join(["a.i > b.i"] * 3000), "not " * 3000 + "a.f <> b.f"],
    ids=["parentheses", "conjuncts", "negations"],
)
def test_a_text_that_is_too_deep_is_refused(text):
    with pytest.raises(QueryError, match="nested that deep"):
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
def test_equalities_are_told_from_residuals(text, equalities, residuals):
    if equalities is None:
        with pytest.raises(QueryError, match="two or more streams"):
            read_predicate(text, STREAMS, "UTC")
        return
    equal, rest = read_predicate(text, STREAMS, "UTC")
    assert ([str(e) for e in equal], len(rest)) == (equalities, residuals)


def test_a_residual_knows_its_columns_and_streams():
    (residual,) = read_predicate("a.i + b.i > a.i and c.i <> a.i", STREAMS, "UTC")[1][:1]
    assert [str(ref) for ref in residual.columns] == ["a.i", "b.i"]
    assert residual.streams == {"a", "b"}
