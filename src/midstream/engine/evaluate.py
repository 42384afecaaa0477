"""Evaluating residual predicates with Polars, with the results that Spark would give.

Where Spark's default (ANSI) mode would stop the query, at a division by zero or an overflow, a residual is
null and the row does not pass.

Dates, times and intervals are integers here, of microseconds: Polars has types for them, but panics at values
beyond its calendar.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta

import polars as pl
import pyarrow as pa
from pyarrow import types

from midstream.engine.micros import int64_micros, int128_micros, null_unless_int64
from midstream.plan.layout import column_name
from midstream.query.clauses import Residual
from midstream.query.expression import Call, Column, Constant, Expression, ExpressionOperator
from midstream.query.operator_types import comparison_type
from midstream.query.types import type_family

_MAX_DIGITS = 38


def filter_residual(residual: Residual, columns: dict[str, pa.ChunkedArray]) -> pl.Series:
    """Which rows pass; ``columns`` are the payload columns that the residual reads."""
    frame = pl.DataFrame({name: _to_series(column) for name, column in columns.items()})
    passed = frame.select(_evaluate(residual.expression).fill_null(value=False).alias("passed"))
    return passed.get_column("passed")


def _to_series(column: pa.ChunkedArray) -> pl.Series:
    """A column as expressions read it."""
    if types.is_date32(column.type):
        return int128_micros(column)
    is_time = types.is_timestamp(column.type)
    return pl.Series(pl.from_arrow(int64_micros(column) if is_time else column))


def _evaluate(expression: Expression) -> pl.Expr:
    if isinstance(expression, Column):
        return _cast(pl.col(column_name(expression.ref)), expression.type)
    if isinstance(expression, Constant):
        return _constant(expression)
    if expression.operator in _COMPARISONS:
        left, right = _in_common_type(expression.args)
        return _COMPARISONS[expression.operator](left, right)
    return _CALLS[expression.operator](expression)


def _constant(constant: Constant) -> pl.Expr:
    value = constant.value
    if isinstance(value, datetime):
        value = (value.replace(tzinfo=UTC) - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
    elif isinstance(value, date):
        value = (value - date(1970, 1, 1)) // timedelta(microseconds=1)
    elif isinstance(value, timedelta):
        value = value // timedelta(microseconds=1)
    return _cast(pl.lit(value), constant.type)


def _cast(value: pl.Expr, dtype: pa.DataType) -> pl.Expr:
    """The value in the Polars type for an Arrow type: the widest of its family, so that results are exact."""
    if types.is_integer(dtype) or _is_temporal(dtype):
        return value.cast(pl.Int128)
    if types.is_decimal(dtype):
        return value.cast(pl.Decimal(_MAX_DIGITS, dtype.scale))
    if types.is_floating(dtype):
        return value.cast(pl.Float64)
    return value


def _is_temporal(dtype: pa.DataType) -> bool:
    return type_family(dtype) in ("time", "interval")


def _checked(result: pl.Expr, dtype: pa.DataType) -> pl.Expr:
    """The result of a calculation in 128 bits, which cannot overflow; null if 64 bits would have."""
    return null_unless_int64(result) if types.is_integer(dtype) or _is_temporal(dtype) else result


def _in_type(expression: Expression, dtype: pa.DataType) -> pl.Expr:
    """A value in the type in which it is compared."""
    value = _cast(_evaluate(expression), dtype)
    # The range of dates is larger than that of timestamps.
    may_overflow = types.is_date32(expression.type) and types.is_timestamp(dtype)
    return null_unless_int64(value) if may_overflow else value


def _in_common_type(args: tuple[Expression, ...]) -> list[pl.Expr]:
    """The arguments in the type in which all of them compare."""
    dtype = pa.null()
    for arg in args:
        dtype = comparison_type(dtype, arg.type)
    return [_in_type(arg, dtype) for arg in args]


def _arithmetic(calculate: Callable[[pl.Expr, pl.Expr], pl.Expr]) -> Callable[[Call], pl.Expr]:
    def evaluate(call: Call) -> pl.Expr:
        left, right = (_evaluate(arg) for arg in call.args)
        if types.is_decimal(call.type) or types.is_floating(call.type):
            left, right = _cast(left, call.type), _cast(right, call.type)
        result = calculate(left, right)
        return _checked(result, call.type)

    return evaluate


def _divide(left: pl.Expr, right: pl.Expr) -> pl.Expr:
    return pl.when(right != 0).then(left / right)


def _remainder(left: pl.Expr, right: pl.Expr) -> pl.Expr:
    """The remainder with the sign of the dividend, as in Spark; in Polars it has that of the divisor."""
    magnitude = left.abs() % right.abs()
    return pl.when(right != 0).then(pl.when(left < 0).then(_negate(magnitude)).otherwise(magnitude))


def _negate(value: pl.Expr) -> pl.Expr:
    """Polars has no unary minus for 128 bits."""
    return 0 - value


def _case(call: Call) -> pl.Expr:
    *branches, default = call.args
    result = _in_type(default, call.type)
    for condition, value in reversed(list(zip(branches[::2], branches[1::2], strict=True))):
        result = pl.when(_evaluate(condition)).then(_in_type(value, call.type)).otherwise(result)
    return result


def _like(call: Call) -> pl.Expr:
    value, pattern = call.args
    if not (isinstance(pattern, Constant) and isinstance(pattern.value, str)):
        raise TypeError("the translator lets only literal patterns through")
    regex: list[str] = []
    escaped = False
    for char in pattern.value:
        if escaped or char not in "%_\\":
            regex.append(re.escape(char))
            escaped = False
        elif char == "\\":
            escaped = True
        else:
            regex.append(".*" if char == "%" else ".")
    return _evaluate(value).str.contains(f"(?s)^{''.join(regex)}$")


def _unary(function: Callable[[pl.Expr], pl.Expr]) -> Callable[[Call], pl.Expr]:
    return lambda call: function(_evaluate(call.args[0]))


def _checked_unary(function: Callable[[pl.Expr], pl.Expr]) -> Callable[[Call], pl.Expr]:
    """For functions that change the sign: the smallest 64-bit number has no opposite."""
    return lambda call: _checked(function(_evaluate(call.args[0])), call.type)


_COMPARISONS: dict[ExpressionOperator, Callable[[pl.Expr, pl.Expr], pl.Expr]] = {
    "=": lambda a, b: a == b,
    "<>": lambda a, b: a != b,
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
    "<=>": lambda a, b: a.eq_missing(b),
}
_CALLS: dict[ExpressionOperator, Callable[[Call], pl.Expr]] = {
    "and": lambda call: _evaluate(call.args[0]) & _evaluate(call.args[1]),
    "or": lambda call: _evaluate(call.args[0]) | _evaluate(call.args[1]),
    "not": _unary(lambda a: ~a),
    "+": _arithmetic(lambda a, b: a + b),
    "-": _arithmetic(lambda a, b: a - b),
    "*": _arithmetic(lambda a, b: a * b),
    "/": _arithmetic(_divide),
    "%": _arithmetic(_remainder),
    "negate": _checked_unary(_negate),
    "abs": _checked_unary(lambda a: a.abs()),
    "is null": _unary(lambda a: a.is_null()),
    "like": _like,
    "coalesce": lambda call: pl.coalesce(_in_common_type(call.args)),
    "case": _case,
    "lower": _unary(lambda a: a.str.to_lowercase()),
    "upper": _unary(lambda a: a.str.to_uppercase()),
    "length": _unary(lambda a: a.str.len_chars().cast(pl.Int128)),
    "sqrt": _unary(lambda a: a.cast(pl.Float64).sqrt()),
}
