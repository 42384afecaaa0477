"""The argument and result types of operators, by Spark's rules.

For a combination whose result would depend on rounding or on a session setting, the functions return None,
and the caller refuses it.
"""

from __future__ import annotations

import pyarrow as pa
from pyarrow import types

from midstream.query.types import LOCAL_TIMESTAMP, common_type, type_family

INTERVAL = pa.duration("us")
_MAX_DIGITS = 38
_BIGINT_DIGITS = 19


def comparison_type(left: pa.DataType, right: pa.DataType) -> pa.DataType | None:
    """The type in which two values compare; null literals compare with everything."""
    if types.is_null(left):
        return right
    if types.is_null(right) or left == right:
        return left
    if type_family(left) == type_family(right) == "number" or {left, right} == {pa.date32(), LOCAL_TIMESTAMP}:
        return common_type((left, right))
    # Comparing an instant with a date or a local time needs the session's time zone: let the user cast.
    return None


def arithmetic_type(operator: str, left: pa.DataType, right: pa.DataType) -> pa.DataType | None:
    """The type of ``left operator right``."""
    match type_family(left), operator, type_family(right):
        case "number", _, "number":
            return _number_type(operator, left, right)
        case "time", "-", "time":
            return INTERVAL if left == right else None
        case "time", "+" | "-", "interval":
            return left if types.is_timestamp(left) else None
        case "interval", "+", "time":
            return right if types.is_timestamp(right) else None
        case "interval", "+" | "-", "interval":
            return INTERVAL
    return None


def _number_type(operator: str, left: pa.DataType, right: pa.DataType) -> pa.DataType | None:
    if types.is_floating(left) or types.is_floating(right):
        return pa.float64()
    if types.is_integer(left) and types.is_integer(right):
        return pa.float64() if operator == "/" else pa.int64()
    if operator in ("/", "%"):
        return None
    (p1, s1), (p2, s2) = (_precision_and_scale(dtype) for dtype in (left, right))
    if operator == "*":
        precision, scale = p1 + p2 + 1, s1 + s2
    else:
        scale = max(s1, s2)
        precision = max(p1 - s1, p2 - s2) + scale + 1
    return pa.decimal128(precision, scale) if precision <= _MAX_DIGITS else None


def _precision_and_scale(dtype: pa.DataType) -> tuple[int, int]:
    return (dtype.precision, dtype.scale) if types.is_decimal(dtype) else (_BIGINT_DIGITS, 0)
