"""Dates and times as integers of microseconds.

Dates, and timestamps in milliseconds or seconds, may be beyond 64 bits of microseconds. Polars' types panic
at such values, and Arrow's casts refuse the whole column.
"""

from __future__ import annotations

import polars as pl
import pyarrow as pa
from pyarrow import types

_MICROS_PER_DAY = 86_400_000_000
_MICROS_PER_UNIT = {"s": 1_000_000, "ms": 1_000, "us": 1}


def int128_micros(column: pa.Array | pa.ChunkedArray) -> pl.Series:
    """A column of dates, as their midnight, or of times, in 128 bits; nanoseconds are rounded down."""
    dtype = column.type
    numbers = pl.Series(pl.from_arrow(column.cast(pa.int32() if types.is_date32(dtype) else pa.int64())))
    value = pl.lit(numbers).cast(pl.Int128)
    if types.is_date32(dtype):
        value = value * _MICROS_PER_DAY
    else:
        value = value * _MICROS_PER_UNIT[dtype.unit] if dtype.unit in _MICROS_PER_UNIT else value // 1_000
    return pl.select(value.alias("micros")).to_series()


def null_unless_int64(value: pl.Expr) -> pl.Expr:
    """The integers that fit into 64 bits; null for others."""
    return pl.when(value.is_between(-(2**63), 2**63 - 1)).then(value)


def int64_micros(column: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """A column of dates or times in 64 bits; null where they do not fit."""
    if types.is_timestamp(column.type) and column.type.unit == "us":
        return column.cast(pa.int64())
    value = null_unless_int64(pl.lit(int128_micros(column))).cast(pl.Int64)
    return pl.select(value.alias("micros")).to_series().to_arrow()
