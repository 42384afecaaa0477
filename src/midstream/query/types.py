"""Which types may be compared, and the one type in which a key class compares its columns.

Spark compares ``int = bigint`` or ``decimal(10,2) = decimal(12,4)`` by casting both sides to a common
type. A key class may have many columns, so all of them are cast to the common type of the whole class
when rows are encoded (see :mod:`midstream.query.keys` for the pairs that need a finer comparison).
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache, reduce

import pyarrow as pa
from pyarrow import types

TIMESTAMP = pa.timestamp("us", tz="UTC")
LOCAL_TIMESTAMP = pa.timestamp("us")

# Decimal digits that hold every value of an integer of this many bits.
_INTEGER_DIGITS = {8: 3, 16: 5, 32: 10, 64: 19}
_MAX_DIGITS = 38
_NAMES = {
    pa.int8(): "tinyint",
    pa.int16(): "smallint",
    pa.int32(): "int",
    pa.int64(): "bigint",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.string(): "string",
    pa.large_string(): "string",
    pa.binary(): "binary",
    pa.large_binary(): "binary",
    pa.bool_(): "boolean",
    pa.date32(): "date",
    pa.duration("us"): "interval day to second",
    pa.null(): "void",
}


def common_type(dtypes: Iterable[pa.DataType]) -> pa.DataType | None:
    """The type in which values of all ``dtypes`` compare as Spark compares them; None if there is none."""
    return reduce(lambda a, b: None if a is None else _common(a, b), map(canonical_type, dtypes))


def canonical_type(dtype: pa.DataType) -> pa.DataType | None:
    """The type in which a key column of this type is stored; None if it cannot be a key."""
    if types.is_integer(dtype):
        return pa.int64()
    if types.is_floating(dtype):
        return pa.float64()
    if types.is_string(dtype) or types.is_large_string(dtype):
        return pa.string()
    if types.is_binary(dtype) or types.is_large_binary(dtype):
        return pa.binary()
    if types.is_timestamp(dtype):
        return LOCAL_TIMESTAMP if dtype.tz is None else TIMESTAMP
    if types.is_boolean(dtype) or types.is_date32(dtype) or types.is_decimal(dtype):
        return dtype
    return None


def fits_in_hash(dtype: pa.DataType) -> bool:
    """Whether 64-bit hashes of the type are one to one, so that equal hashes mean equal values."""
    return not (types.is_string(dtype) or types.is_binary(dtype) or types.is_decimal(dtype))


def type_family(dtype: pa.DataType) -> str | None:
    """The family of types that may be compared with each other by ``<`` and ``=``."""
    for name, test in (
        ("number", lambda k: types.is_integer(k) or types.is_floating(k) or types.is_decimal(k)),
        ("string", lambda k: types.is_string(k) or types.is_large_string(k)),
        ("time", lambda k: types.is_timestamp(k) or types.is_date32(k)),
        ("boolean", types.is_boolean),
        ("binary", lambda k: types.is_binary(k) or types.is_large_binary(k)),
        ("interval", types.is_duration),
        ("null", types.is_null),
    ):
        if test(dtype):
            return name
    return None


@lru_cache(maxsize=1024)
def show_type(dtype: pa.DataType) -> str:
    """The name by which Spark users know the type; Arrow's own for a type that only it has."""
    if types.is_timestamp(dtype):
        return "timestamp_ntz" if dtype.tz is None else "timestamp"
    if types.is_decimal(dtype):
        return f"decimal({dtype.precision},{dtype.scale})"
    if types.is_list(dtype) or types.is_large_list(dtype):
        return f"array<{_show_field(dtype.value_field)}>"
    if types.is_map(dtype):
        return f"map<{show_type(dtype.key_type)},{_show_field(dtype.item_field)}>"
    if types.is_struct(dtype):
        fields = (dtype.field(i) for i in range(dtype.num_fields))
        return f"struct<{','.join(f'{field.name}:{_show_field(field)}' for field in fields)}>"
    return _NAMES.get(dtype, str(dtype))


def _show_field(field: pa.Field) -> str:
    return show_type(field.type) if field.nullable else f"{show_type(field.type)} not null"


def _common(a: pa.DataType, b: pa.DataType | None) -> pa.DataType | None:
    if b is None or a == b:
        return b
    if type_family(a) == type_family(b) == "number":
        return _common_number(a, b)
    if type_family(a) == type_family(b) == "time":
        # As in Spark, a date compares as its midnight, a local timestamp as an instant in the session's zone.
        return LOCAL_TIMESTAMP if TIMESTAMP not in (a, b) else TIMESTAMP
    return None


def _common_number(a: pa.DataType, b: pa.DataType) -> pa.DataType | None:
    if types.is_floating(a) or types.is_floating(b):
        return pa.float64()
    a, b = _as_decimal(a), _as_decimal(b)
    scale = max(a.scale, b.scale)
    digits = max(a.precision - a.scale, b.precision - b.scale) + scale
    return pa.decimal128(digits, scale) if digits <= _MAX_DIGITS else None


def _as_decimal(dtype: pa.DataType) -> pa.DataType:
    return dtype if types.is_decimal(dtype) else pa.decimal128(_INTEGER_DIGITS[dtype.bit_width], 0)
