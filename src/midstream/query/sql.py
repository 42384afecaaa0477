"""Parsing text with sqlglot, in Spark's dialect: expressions, their conjuncts, and dotted names."""

from __future__ import annotations

import re
from functools import lru_cache

import sqlglot
from sqlglot import exp
from sqlglot.errors import ParseError, SqlglotError

from midstream.errors import QueryError, show_value
from midstream.query.intervals import check_interval_texts

_PART = re.compile(r"`((?:[^`]|``)+)`|([^.`]+)")


def parse(text: str, what: str) -> exp.Expr:
    """Parse one expression; several statements, or none, are refused. The tree is only to be read."""
    if not isinstance(text, str) or not text.strip():
        hint = "write columns with their streams, as in a.x"
        raise QueryError(f"{what} must be the text of one expression", got=show_value(text), hint=hint)
    try:
        statements = _statements(text)
    except SqlglotError as error:
        got, hint = _syntax_error(text, error)
        raise QueryError(f"{what} must be valid SQL", got=got, hint=hint) from None
    if len(statements) != 1 or statements[0] is None:
        raise QueryError(
            f"{what} must be one expression", got=repr(text), hint="leave out semicolons and comments"
        )
    return statements[0]


@lru_cache(maxsize=1024)
def _statements(text: str) -> tuple[exp.Expr | None, ...]:
    """The statements of a text; a query has the same texts each time that it is built."""
    check_interval_texts(sqlglot.tokenize(text, read="spark"), text)
    return tuple(sqlglot.parse(text, read="spark"))


def _syntax_error(text: str, error: SqlglotError) -> tuple[str, str]:
    """Where a text stops to be SQL, and what to do; the parser's own words name its classes."""
    if not isinstance(error, ParseError) or not error.errors:
        return repr(text), "close all quotes, back-quotes and comments"
    stop = error.errors[0]
    where = f"at {stop['highlight']!r}, line {stop['line']}, column {stop['col']}"
    return f"{text!r}, which cannot be read {where}", _hint_for(text, str(stop["highlight"]))


def _hint_for(text: str, stop: str) -> str:
    if stop == ",":
        return "write several as several arguments, each in quotes of its own"
    if text.count("(") != text.count(")"):
        return "close each parenthesis that is opened"
    if text.rstrip().endswith(stop):
        return "write what comes after it, or leave it out"
    return "a name that is a word of SQL, or that has odd characters, goes in back-quotes"


def conjuncts(tree: exp.Expr) -> list[exp.Expr]:
    """The operands of a predicate's top-level ANDs."""
    tree = tree.unnest()
    if isinstance(tree, exp.And):
        return [*conjuncts(tree.left), *conjuncts(tree.right)]
    return [tree]


def show_sql(tree: exp.Expr) -> str:
    """A tree as an error shows it, with the names of functions as they were written."""
    return tree.sql(dialect="spark", normalize_functions=False)


def dotted_name(tree: exp.Expr) -> tuple[str, ...] | None:
    """The parts of ``stream.column.field``, or None if the tree is something else."""
    if isinstance(tree, exp.Column):
        return tuple(part.name for part in tree.parts)
    if isinstance(tree, exp.Dot):
        left = dotted_name(tree.this)
        return (*left, tree.expression.name) if left else None
    return None


def split_name(text: str) -> tuple[str, ...]:
    """The parts of a dotted name; a part that contains dots is in back-quotes."""
    return tuple((quoted.replace("``", "`") if quoted else plain) for quoted, plain in _PART.findall(text))
