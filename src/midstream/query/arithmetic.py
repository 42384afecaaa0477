"""The types that operators take and give, by Spark's rules.

A combination whose result would depend on rounding or on a setting of the session is not guessed at:
the functions return None and the caller refuses it.
"""

from __future__ import annotations

import pyarrow as pa
from pyarrow import types

from midstream.query.types import LOCAL_TIMESTAMP, common_type, family

INTERVAL = pa.duration("us")
_MAX_DIGITS = 38
_BIGINT_DIGITS = 19


def compared_type(left: pa.DataType, right: pa.DataType) -> pa.DataType | None:
    """The type in which two values compare; null literals compare with everything."""
    if types.is_null(left):
        return right
    if types.is_null(right) or left == right:
        return left
    if family(left) == family(right) == "number" or {left, right} == {pa.date32(), LOCAL_TIMESTAMP}:
        return common_type((left, right))
    # Instants mix with dates and local times only by the session's time zone: let the user cast them.
    return None


def arithmetic_type(operator: str, left: pa.DataType, right: pa.DataType) -> pa.DataType | None:
    """The type of ``left operator right``."""
    match family(left), operator, family(right):
        case "number", _, "number":
            return _number(operator, left, right)
        case "time", "-", "time":
            return INTERVAL if left == right else None
        case "time", "+" | "-", "interval":
            return left if types.is_timestamp(left) else None
        case "interval", "+", "time":
            return right if types.is_timestamp(right) else None
        case "interval", "+" | "-", "interval":
            return INTERVAL
    return None


def _number(operator: str, left: pa.DataType, right: pa.DataType) -> pa.DataType | None:
    if types.is_floating(left) or types.is_floating(right):
        return pa.float64()
    if types.is_integer(left) and types.is_integer(right):
        return pa.float64() if operator == "/" else pa.int64()
    if operator in ("/", "%"):
        return None
    (p1, s1), (p2, s2) = (_digits(kind) for kind in (left, right))
    if operator == "*":
        precision, scale = p1 + p2 + 1, s1 + s2
    else:
        scale = max(s1, s2)
        precision = max(p1 - s1, p2 - s2) + scale + 1
    return pa.decimal128(precision, scale) if precision <= _MAX_DIGITS else None


def _digits(kind: pa.DataType) -> tuple[int, int]:
    return (kind.precision, kind.scale) if types.is_decimal(kind) else (_BIGINT_DIGITS, 0)
