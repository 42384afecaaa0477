"""Decimals as whole numbers of their last digit, in 128 bits."""

from __future__ import annotations

import polars as pl
import pyarrow as pa

_BYTES = 16


def unscaled(values: pl.Series) -> pl.Series:
    """The whole numbers that decimals consist of: 125 for 1.25."""
    return values.to_physical()


def from_unscaled(numbers: pl.Series, dtype: pa.DataType) -> pl.Series:
    """Decimals of a type from their whole numbers; null where a number has too many digits."""
    number = pl.col("number")
    fitting = pl.when(number.abs() < 10**dtype.precision).then(number)
    wide = (
        numbers.to_frame("number").select(fitting.cast(pl.Decimal(dtype.precision, 0))).to_series().to_arrow()
    )
    array = pa.Array.from_buffers(dtype, len(wide), wide.buffers(), wide.null_count, wide.offset)
    return pl.Series(pl.from_arrow(array))
