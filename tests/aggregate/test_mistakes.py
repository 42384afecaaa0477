"""Mistakes in groups and aggregates: every message says what to write instead."""

from collections.abc import Callable

import pytest

from midstream.aggregate.read_aggregation import read_aggregation
from midstream.aggregate.user_function import udaf
from midstream.aggregate.window import Window, window
from tests.helpers import make_stream
from tests.plain_errors import told_of


def _group(window: Window, aggregate: str = "count(*) AS n") -> object:
    return read_aggregation(["a.i", window], [aggregate], [make_stream(name) for name in "ab"])


class _Uncomparable:
    """Refuses to be compared, as a Column of Spark's does."""

    def __eq__(self, other: object) -> bool:
        raise TypeError("cannot convert column into bool")

    __hash__ = None  # type: ignore[assignment]  # as with a Column


class _Longest:
    """A user-defined aggregate."""

    def add(self, batch: object) -> None: ...

    def merge(self, other: object) -> None: ...

    def result(self) -> None: ...

    def dump(self) -> bytes:
        return b""

    @classmethod
    def load(cls, state: object) -> "_Longest":
        return cls()


# Mistakes, and the part of the message that helps.
_HINTS: dict[str, tuple[Callable[[], object], str]] = {
    "Spark's window": (
        lambda: _group(window(_Uncomparable(), "10 minutes")),  # type: ignore[arg-type]
        "must begin with its length; got a value of type _Uncomparable. "
        "Hint: the time comes last, by its name: window('10 minutes', time='a.t')",
    ),
    "Spark's window of a column's name": (
        lambda: _group(window("t", "10 minutes")),
        "must begin with its length; got 't'. Hint: the time comes last",
    ),
    "a window that is no duration": (
        lambda: _group(window("soon")),
        "a window of results must be a duration; got 'soon'",
    ),
    "an aggregate of aggregates": (
        lambda: _group(window("1 hour"), "sum(a.i) / count(*) AS x"),
        "one function, and then its name; got '/ count(*) AS x' after 'sum(a.i)'. Hint: give each function",
    ),
    "an aggregate of some rows": (
        lambda: _group(window("1 hour"), "count(*) FILTER (WHERE a.i > 3) AS x"),
        "got 'FILTER (WHERE a.i > 3) AS x' after 'count(*)'. Hint: aggregate a column of the Data",
    ),
    "an aggregate without a name": (
        lambda: _group(window("1 hour"), "count(*) AS"),
        "an aggregate must have one name; got 'count(*) AS'. Hint: write 'count(*) AS a_name'",
    ),
    "a sum of text": (
        lambda: _group(window("1 hour"), "sum(a.n) AS x"),
        "of at most 28 digits; got a.n of type string. Hint: cast it, or choose a field",
    ),
    "a sum of two": (
        lambda: _group(window("1 hour"), "sum(a.i, a.l) AS x"),
        "sum must have one argument; got 'sum(a.i, a.l) AS x'. Hint: write an aggregate for each column",
    ),
    "a function without its type": (
        lambda: udaf(_Longest),
        "must be given the type of the results; got the class _Longest itself. "
        "Hint: write @udaf('double') before class _Longest",
    ),
}


@pytest.mark.parametrize("name", _HINTS)
def test_a_mistake_that_newcomers_make_is_told_with_what_to_do(name):
    mistake, told = _HINTS[name]
    assert told in told_of(mistake)
