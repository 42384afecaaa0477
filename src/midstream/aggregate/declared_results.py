"""Results of users' aggregates, as values of the type that was declared.

Nothing is rounded, cut off or read as something else in silence, as Arrow's own conversion would: 1.5 would
become 1, and a moment a day. Only a double that is declared a float is rounded, as that is what it means.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import types

from midstream.errors import AggregateError
from midstream.query.types import show_type


def as_declared(value: Any, declared: pa.DataType) -> pa.Scalar:
    """A result as a scalar of the declared type; an error if it is of another type."""
    try:
        plain = _plain(value)
        if _fits(plain, declared):
            return pa.scalar(plain, declared)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        pass
    must = "a result must be of the type that was declared"
    got = f"{type(value).__name__} {value!r}, which is no {show_type(declared)}"
    raise AggregateError(must, got=got)


def _plain(value: Any) -> Any:
    """A value as Python has it, if it is one of NumPy's or Arrow's."""
    if isinstance(value, pa.Scalar):
        return value.as_py()
    if isinstance(value, pa.Array | pa.ChunkedArray):
        return value.to_pylist()
    if isinstance(value, np.generic):
        # Nanoseconds become a number, which is no timestamp.
        return value.item()
    return value.tolist() if isinstance(value, np.ndarray) else value


def _fits(value: Any, declared: pa.DataType) -> bool:
    value = _plain(value)
    if value is None:
        return True
    return next((fits(value, declared) for is_kind, fits in _KINDS if is_kind(declared)), False)


def _is_a(*classes: type, but: type | None = None) -> Callable[[Any, pa.DataType], bool]:
    def fits(value: Any, _declared: pa.DataType) -> bool:
        return isinstance(value, classes) and not (but is not None and isinstance(value, but))

    return fits


def _is_number(value: Any, declared: pa.DataType) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    # A finite number that becomes infinite, as a float has a smaller range than a double.
    return not math.isfinite(value) or math.isfinite(pa.scalar(value, declared).as_py())


def _is_timestamp(value: Any, declared: pa.DataType) -> bool:
    # Without a time zone of its own it is in UTC; a local time has none.
    return isinstance(value, datetime) and (declared.tz is not None or value.tzinfo is None)


def _is_array(value: Any, declared: pa.DataType) -> bool:
    return isinstance(value, list | tuple) and all(_fits(each, declared.value_type) for each in value)


def _is_map(value: Any, declared: pa.DataType) -> bool:
    if not isinstance(value, Mapping | list | tuple):
        return False
    pairs = value.items() if isinstance(value, Mapping) else value
    return all(_fits(key, declared.key_type) and _fits(item, declared.item_type) for key, item in pairs)


def _is_struct(value: Any, declared: pa.DataType) -> bool:
    fields = [declared.field(i) for i in range(declared.num_fields)]
    if isinstance(value, Mapping):
        is_known = set(value) <= {field.name for field in fields}
        return is_known and all(_fits(value.get(field.name), field.type) for field in fields)
    if not isinstance(value, tuple) or len(value) != len(fields):
        return False
    return all(_fits(each, field.type) for each, field in zip(value, fields, strict=True))


_KINDS: Sequence[tuple[Callable[[pa.DataType], bool], Callable[[Any, pa.DataType], bool]]] = (
    (types.is_boolean, _is_a(bool)),
    (types.is_integer, _is_a(int, but=bool)),
    (types.is_floating, _is_number),
    (types.is_decimal, _is_a(Decimal, int, but=bool)),
    (types.is_string, _is_a(str)),
    (types.is_large_string, _is_a(str)),
    (types.is_binary, _is_a(bytes, bytearray)),
    (types.is_large_binary, _is_a(bytes, bytearray)),
    (types.is_date, _is_a(date, but=datetime)),
    (types.is_timestamp, _is_timestamp),
    (types.is_duration, _is_a(timedelta)),
    (types.is_map, _is_map),
    (types.is_list, _is_array),
    (types.is_large_list, _is_array),
    (types.is_struct, _is_struct),
)
"""What a result must be, by the kind of its declared type."""
