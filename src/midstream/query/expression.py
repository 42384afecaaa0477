"""Expressions as values: the closed set of what a residual predicate may compute.

Text is parsed once, on the driver (:mod:`midstream.query.sql`), into these frozen values; the engine turns
them into Polars expressions (:mod:`midstream.engine.evaluate`). Tasks receive nothing else, so text from a
user is never executed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Literal as OneOf

import pyarrow as pa

from midstream.query.stream import ColumnRef

Value = bool | int | float | str | bytes | Decimal | date | datetime | timedelta | None

ExpressionOperator = OneOf[
    "and", "or", "not",
    "=", "<>", "<", "<=", ">", ">=", "<=>",
    "+", "-", "*", "/", "%", "negate", "abs",
    "is null", "like", "coalesce", "case",
    "lower", "upper", "length", "sqrt",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Column:
    """The value of a column."""

    ref: ColumnRef
    type: pa.DataType


@dataclass(frozen=True, slots=True)
class Constant:
    """A literal."""

    value: Value
    type: pa.DataType


@dataclass(frozen=True, slots=True)
class Call:
    """An operator applied to arguments; ``type`` is that of the result."""

    operator: ExpressionOperator
    args: tuple[Expression, ...]
    type: pa.DataType


Expression = Column | Constant | Call


def columns(expression: Expression) -> Iterator[ColumnRef]:
    """Every column that the expression reads, in order of appearance."""
    if isinstance(expression, Column):
        yield expression.ref
    elif isinstance(expression, Call):
        for arg in expression.args:
            yield from columns(arg)
