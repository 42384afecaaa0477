"""Dates and times as whole numbers of microseconds, whatever a calendar makes of them.

Dates reach further than 64 bits of microseconds, and so do timestamps in milliseconds or seconds. Polars' own
types would panic at such values, and Arrow's casts would refuse the whole column.
"""

from __future__ import annotations

import polars as pl
import pyarrow as pa
from pyarrow import types

_DAY = 86_400_000_000
_MICROS = {"s": 1_000_000, "ms": 1_000, "us": 1}


def exact_micros(column: pa.Array | pa.ChunkedArray) -> pl.Series:
    """A column of dates, at their midnight, or of times, in 128 bits; of nanoseconds only whole micros."""
    kind = column.type
    numbers = pl.Series(pl.from_arrow(column.cast(pa.int32() if types.is_date32(kind) else pa.int64())))
    value = pl.lit(numbers).cast(pl.Int128)
    if types.is_date32(kind):
        value = value * _DAY
    else:
        value = value * _MICROS[kind.unit] if kind.unit in _MICROS else value // 1_000
    return pl.select(value.alias("micros")).to_series()


def fitting(value: pl.Expr) -> pl.Expr:
    """A whole number if 64 bits hold it, else null."""
    return pl.when(value.is_between(-(2**63), 2**63 - 1)).then(value)


def fitting_micros(column: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """A column of dates or times in 64 bits; what they do not hold is null."""
    if types.is_timestamp(column.type) and column.type.unit == "us":
        return column.cast(pa.int64())
    value = fitting(pl.lit(exact_micros(column))).cast(pl.Int64)
    return pl.select(value.alias("micros")).to_series().to_arrow()
