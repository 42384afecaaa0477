"""Hints for predicates that are refused: what a user can do depends on the streams and the types in them."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import pyarrow as pa
from sqlglot import exp

from midstream.query.clauses import Residual
from midstream.query.expression import Call, Column, Expression, columns
from midstream.query.sql import dotted_name
from midstream.query.types import canonical_type, type_family

_CAST = "cast the column in its DataFrame before the join"
_LOOK_UP = "join the DataFrame of a stream with the table before this join, and use its columns"
_AGGREGATE = "a predicate is about single rows: aggregate the results of the join"
# What a DataFrame of a stream cannot compute row by row, and what can be written in another way.
_SPECIAL: tuple[tuple[type[exp.Expr], str], ...] = (
    (exp.Query, _LOOK_UP),
    (exp.Exists, _LOOK_UP),
    (exp.AggFunc, _AGGREGATE),
    (exp.Window, _AGGREGATE),
    (exp.NullSafeNEQ, "write NOT (x <=> y)"),
    (exp.Is, "write x <=> y, or IS NULL"),
    (exp.ILike, "write lower(x) LIKE '...'"),
    (exp.Literal, "a whole number has 64 bits: write a larger one with a point, as 100000000000000000000.0"),
)


def for_refusal(tree: exp.Expr, streams: Sequence[str]) -> str:
    """What to do about an expression that no predicate may have."""
    for kind, hint in _SPECIAL:
        if isinstance(tree, kind):
            return hint
    if tree.find(exp.Query) is not None:
        return _LOOK_UP
    used = _streams_in(tree, streams)
    if len(used) > 1:
        where = "in foreachBatch or where they are read"
        return f"no DataFrame has columns of {' and '.join(used)}: filter the results by it, {where}"
    what = "compute it" if used else "write its value, or compute it"
    frame = f"the DataFrame of {used[0]}" if used else "a DataFrame"
    return f"{what} as a column of {frame}, with withColumn, and use that column"


def for_equality(left: pa.DataType, right: pa.DataType) -> str:
    """What to do about two columns whose types do not compare as keys."""
    if canonical_type(left) is None or canonical_type(right) is None:
        return "use a field of it, or add a column of a simple type to the DataFrame"
    if type_family(left) == type_family(right) == "number":
        return "no decimal is wide enough for both, cast one of them"
    return "cast one of the columns in its DataFrame before the join"


def for_unconnected(residuals: Sequence[Residual], connected: Collection[str]) -> str:
    """What to do about streams that no equality connects with the others.

    An equality of expressions connects nothing, but would if the expressions were columns.
    """
    for residual in residuals:
        match residual.expression:
            case Call("=", (left, right)) if _connects(left, right, connected):
                computed = [_stream_of(side) for side in (left, right) if not isinstance(side, Column)]
                what = "an expression" if len(computed) == 1 else "expressions"
                return (
                    f"{residual.text} compares {what}: add what it computes to the DataFrame of "
                    f"{' and that of '.join(computed)}, with withColumn, and compare the columns"
                )
            case Call("<=>", (Column(left), Column(right))) if (left.stream in connected) != (
                right.stream in connected
            ):
                return (
                    f"rows meet by plain equalities, not by <=>: write {left} = {right}; null equals nothing"
                )
    add = "add .on('a.x = b.y'), or ask for all combinations with .cross()"
    for residual in residuals:
        if residual.streams & set(connected) and not residual.streams <= set(connected):
            return (
                f"rows meet by plain equalities, and {residual.text} only filters those that have met: {add}"
            )
    return add


def for_comparison(left: pa.DataType, right: pa.DataType) -> str:
    """What to do about two types that do not compare."""
    families = {type_family(left), type_family(right)}
    if families == {"time", "string"}:
        return f"write a literal as DATE '...' or TIMESTAMP '...'; else {_CAST}"
    if families == {"interval", "number"}:
        return "write the number as an interval, e.g. INTERVAL 5 MINUTES"
    return _CAST


def for_arithmetic(left: pa.DataType, right: pa.DataType) -> str:
    """What to do about two types that cannot be calculated with."""
    families = {type_family(left), type_family(right)}
    if pa.date32() in (left, right):
        return "compute the date as a column of the DataFrame, e.g. with date_add, and use that column"
    if families in ({"time", "number"}, {"time", "string"}):
        return "add or subtract an interval, e.g. INTERVAL 5 MINUTES"
    if families == {"number"}:
        return "cast a decimal to double, or to one with fewer digits, in its DataFrame before the join"
    return _CAST


def _streams_in(tree: exp.Expr, streams: Sequence[str]) -> list[str]:
    """The streams whose columns a tree has, in their order."""
    names = (dotted_name(node) for node in tree.find_all(exp.Column, exp.Dot))
    used = {name[0].lower() for name in names if name}
    return [stream for stream in streams if stream.lower() in used]


def _connects(left: Expression, right: Expression, connected: Collection[str]) -> bool:
    """Whether two expressions are of one stream each, of which one is connected already."""
    of_one_stream = all(len({ref.stream for ref in columns(side)}) == 1 for side in (left, right))
    return of_one_stream and (_stream_of(left) in connected) != (_stream_of(right) in connected)


def _stream_of(expression: Expression) -> str:
    return next(ref.stream for ref in columns(expression))
