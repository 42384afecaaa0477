"""Mistakes in what is asked for: every message is in the words of whoever made it."""

from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Any

import pyarrow as pa
import pytest

from midstream.plan.tree import parse_plan
from midstream.query.stream import check_name, resolve_path
from midstream.values import duration
from tests.helpers import make_query, make_stream
from tests.plain_errors import told_of

_PREDICATES = """
a.x|a.i =|a.i = = b.i|a.i == b|i = b.i|z.i = b.i|a.q = b.i|a.s.q = b.i|a.i.q = b.i|a.arr.q = b.i
a.s = b.s|a.arr = b.arr|a.i = b.n|a.d = b.n|a.t = b.n|a.t < b.day|a.t = b.i|a.f = b.i|a.s.k = b.n
a.i + b.i|a.i + b.n > 3|a.n + b.n = 'x'|a.i AND b.i|a.n|a.t - b.t|a.d|NOT (a.i)|lower(a.i) = b.n
sqrt(a.n) = b.x|abs(a.n) > b.i|-a.n > b.i|a.i LIKE 'x'|a.n LIKE b.n|foo(a.i, b.i)|foo(a.i) = b.i
my_udf(a.i, b.i) > 3|concat(a.n, b.n) = 'x'|cast(a.i as string) = b.n|a.i::string = b.n|a.n RLIKE b.n
a.n ILIKE 'x' OR b.f|a.i IN (SELECT 1)|EXISTS (SELECT 1)|(SELECT max(x) FROM t) = a.i|SELECT 1
a.i = b.i; DROP TABLE x|DROP TABLE x|a.arr[0] = b.i|array_contains(a.arr, b.i)|a.s.k > b.arr
explode(a.arr) = b.i|a.i = b.i WHERE 1|count(a.i) > b.i|sum(a.i) OVER () > b.i|x -> x + 1|a.* = b.i|*
transform(a.arr, x -> x) = b.arr|map(1, a.i) = b.i|named_struct('x', a.i) = b.s|a.i = :p|a.i = ?
a.b LIKE 'x' OR b.f|a.i = 99999999999999999999|a.i = 1.5L AND b.i > 1|a.i > 1|1 = 1|true|null|'x'
a.i = a.l|a.t < '2026-01-01' OR b.f|a.t < DATE '2024-13-01' OR b.f|a.t < TIMESTAMP 'yesterday' OR b.f
a.t < b.t + INTERVAL 1 MONTH|a.t - b.t < 5|a.t < b.t + INTERVAL '3:60' MINUTE TO SECOND
a.t < b.t + INTERVAL '1-2' YEAR TO MONTH|a.t < b.t + INTERVAL 5 APPLES|a.t < b.t + INTERVAL 'x' SECOND
a.t < b.t + INTERVAL a.i SECONDS|a.t < b.t + INTERVAL 999999999999999 DAYS
a.t < b.t + INTERVAL '1 day 2'|a.t < b.t + INTERVAL '' DAY|a.t < b.t + 5|a.day + 1 > b.day|a.d / b.d > 1
a.day + INTERVAL 1 DAY > b.t|a.d % b.i = 0|a.i BETWEEN b.n AND b.i|coalesce(a.i, b.n) = 1|a.i IN (b.n)
a.i IN ()|CASE WHEN a.i THEN b.i END = 1|CASE WHEN a.f THEN b.i ELSE 'x' END = 1|if(a.i, b.i, 1) = 1
`a.i` = b.i|a.b = b.n|a.odd name = b.i|a.b.c.d = b.i|a.order = b.i|a.i = b.i AND|(a.i = b.i|a.i = b.i)
'unclosed|a.i = "x|a.i @ b.i|a.i & b.i = 1|a.i DIV b.i > 1|current_timestamp() > a.t|now() > b.t
to_date(a.n) = b.day|rand() > a.x|X'1F' = a.b OR b.f|a.n IS DISTINCT FROM b.n|a.i IS b.i
a.f IS TRUE OR b.i|a.n COLLATE UNICODE = b.n|a.i = ANY (b.arr)|a.i = b.i AS x|/* x|
"""
PREDICATES = _PREDICATES.strip().replace("\n", "|").split("|")
SELECTS: list[Any] = [
    "",
    "a",
    "a.q",
    "z.i",
    "a.i +",
    "a.i + 1",
    "*",
    "z.*",
    "a.s.*",
    "count(a.i)",
    "a.i, b.i",
    3,
    None,
    "a.*AS x",
    "SELECT 1",
    "lower(a.n) AS n",
    "a.i; a.l",
]
DURATIONS: list[Any] = [
    "",
    "5",
    "soon",
    "5 apples",
    "-5 seconds",
    "1 month",
    5,
    None,
    ["5 s"],
    timedelta(seconds=-1),
    timedelta(days=99_999_999),
    "99999999999999999999 days",
    "5 seconds and more",
]
PLANS: list[Any] = [
    "",
    "a",
    "a b",
    "(a b",
    "a b) c",
    "a b c d",
    "a a b c",
    "a, b, c",
    "()",
    "((a b) c) ()",
    "a -> b",
    5,
    None,
]
STREAMS: list[Any] = ["", "a b", "1a", "A", None, 3, "ä", "a.b"]


def _mistakes() -> dict[str, Callable[[], object]]:
    """Everything that can be got wrong in the description of a query, by a name."""
    mistakes: dict[str, Callable[[], object]] = {}
    for predicate in PREDICATES:
        mistakes[f"on {predicate}"] = partial(make_query, "ab", ["a.i = b.i", predicate])
    for item in SELECTS:
        mistakes[f"select {item}"] = partial(make_query, "ab", ["a.i = b.i"], select=[item])
    for text in DURATIONS:
        mistakes[f"duration {text}"] = partial(duration, text, "a window")
    for plan in PLANS:
        mistakes[f"plan {plan}"] = partial(parse_plan, plan, "abc")
    for name in STREAMS:
        mistakes[f"stream {name}"] = partial(check_name, name, ["a"])
    return {**mistakes, **_OTHERS}


def _struct() -> pa.Schema:
    return make_stream("a").schema


_OTHERS: dict[str, Callable[[], object]] = {
    "no streams": lambda: make_query("", []),
    "one stream": lambda: make_query("a", []),
    "unconnected": lambda: make_query("abc", ["a.i = b.i"]),
    "an equality of expressions": lambda: make_query("ab", ["a.i = b.i + 1"]),
    "equalities of other types": lambda: make_query("abc", ["a.i = b.d", "b.d = c.d", "a.i = c.n"]),
    "nested too deep": lambda: make_query("ab", ["(" * 900 + "a.i > b.i" + ")" * 900]),
    "a predicate that is no text": lambda: make_query("ab", [object()]),  # type: ignore[list-item]
    "two outputs of a name": lambda: make_query("ab", ["a.i = b.i"], select=["a.i AS x", "b.i AS X"]),
    "no such time": lambda: resolve_path("a", _struct(), ("when",)),
    "no such field": lambda: resolve_path("a", _struct(), ("s", "Deep", "x")),
}

# Mistakes, and the part of the message that helps.
_HINTS: dict[str, tuple[Callable[[], object], str]] = {
    "all": (
        lambda: make_query("ab", ["a.i = b.i"], select=["*"]),
        "got '*'. Hint: leave select out for all columns, or write a.*, b.*",
    ),
    "all by a name": (
        lambda: make_query("ab", ["a.i = b.i"], select=["a.* as x"]),
        "'*' must have no name: it stands for several columns",
    ),
    "or": (
        lambda: make_query("ab", ["a.i = b.i OR a.l = b.l"]),
        "rows meet by plain equalities, and a.i = b.i OR a.l = b.l only filters",
    ),
    "null-safe": (
        lambda: make_query("ab", ["a.i <=> b.i"]),
        "not by <=>: write a.i = b.i; null equals nothing",
    ),
    "back in time": (lambda: duration(timedelta(-1), "a window"), "Hint: write it without the minus"),
    "several items in a text": (
        lambda: make_query("ab", ["a.i = b.i"], select=["a.i, b.i"]),
        "line 1, column 4. Hint: write several as several arguments",
    ),
    "several predicates in a text": (
        lambda: make_query("ab", ["a.i = b.i, a.l = b.l"]),
        "Hint: write several as several arguments, each in quotes of its own",
    ),
    "a predicate that is cut off": (
        lambda: make_query("ab", ["a.i = b.i AND"]),
        "cannot be read at 'AND', line 1, column 13. Hint: write what comes after it",
    ),
    "an open parenthesis": (
        lambda: make_query("ab", ["(a.i = b.i"]),
        "Hint: close each parenthesis that is opened",
    ),
    "a name that is a word of SQL": (lambda: make_query("ab", ["a.odd name = b.i"]), "goes in back-quotes"),
    "a duration in text": (
        lambda: make_query("ab", ["a.i = b.i", "a.t < b.t + '3 minutes'"]),
        "Hint: add or subtract an interval, e.g. INTERVAL 5 MINUTES",
    ),
}


@pytest.mark.parametrize("name", _HINTS)
def test_a_mistake_that_newcomers_make_is_told_with_what_to_do(name):
    mistake, told = _HINTS[name]
    assert told in told_of(mistake)


@pytest.mark.parametrize("mistake", (mistakes := _mistakes()).values(), ids=mistakes)
def test_a_mistake_is_told_in_the_words_of_whoever_made_it(mistake):
    assert told_of(mistake)
