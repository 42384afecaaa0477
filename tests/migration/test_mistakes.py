"""Mistakes in what is asked of a migration: every message is in the words of whoever made it."""

from collections.abc import Callable

import pytest

from midstream.inline import InlineJoin
from tests.helpers import small_query
from tests.plain_errors import told_of


def _join(**more) -> InlineJoin:
    return InlineJoin(small_query(["a.k = b.k", "b.k = c.k"], "abc", **more), "(a b) c")


_IN_MIGRATIONS: dict[str, Callable[[], object]] = {
    "to no plan": lambda: _join().migrate("a b"),
    "to a number": lambda: _join().migrate(5),  # type: ignore[arg-type]
    "by no strategy": lambda: _join().migrate("a (b c)", "magic"),
    "by an object": lambda: _join().migrate("a (b c)", object()),  # type: ignore[arg-type]
    "with background": lambda: _join().migrate("a (b c)", background="yes"),  # type: ignore[arg-type]
    "with a list": lambda: _join().migrate("a (b c)", background=[]),  # type: ignore[arg-type]
    "without a window": lambda: _join().migrate("a (b c)", "parallel_track"),
    "isolated": lambda: _join().migrate("a (b c)", "moving_state", isolated=True),
    "no listener": lambda: _join().addListener(5),  # type: ignore[arg-type]
}

# Mistakes, and the part of the message that helps.
_HINTS: dict[str, tuple[Callable[[], object], str]] = {
    "to None": (lambda: _join().migrate(None), "names and parentheses; got None"),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("name", _HINTS)
def test_a_mistake_that_newcomers_make_is_told_with_what_to_do(name):
    mistake, told = _HINTS[name]
    assert told in told_of(mistake)


@pytest.mark.parametrize("mistake", _IN_MIGRATIONS.values(), ids=_IN_MIGRATIONS)
def test_a_mistake_is_told_in_the_words_of_whoever_made_it(mistake):
    assert told_of(mistake)
