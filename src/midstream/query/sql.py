"""Parsing text with sqlglot, in Spark's dialect: expressions, their conjuncts, and dotted names."""

from __future__ import annotations

import re

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from midstream.errors import QueryError

_PART = re.compile(r"`((?:[^`]|``)+)`|([^.`]+)")


def parse(text: str, what: str) -> exp.Expr:
    """Parse one expression; several statements, or none, are refused."""
    if not isinstance(text, str) or not text.strip():
        raise QueryError(f"{what} must be the text of one expression", got=repr(text))
    try:
        statements = sqlglot.parse(text, read="spark")
    except SqlglotError as error:
        reason = str(error).splitlines()[0]
        hint = f"{reason} A name that is a word of SQL goes in back-quotes"
        raise QueryError(f"{what} must be valid SQL", got=repr(text), hint=hint) from None
    if len(statements) != 1 or statements[0] is None:
        raise QueryError(f"{what} must be one expression", got=repr(text))
    return statements[0]


def conjuncts(tree: exp.Expr) -> list[exp.Expr]:
    """The operands of a predicate's top-level ANDs."""
    tree = tree.unnest()
    if isinstance(tree, exp.And):
        return [*conjuncts(tree.left), *conjuncts(tree.right)]
    return [tree]


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
