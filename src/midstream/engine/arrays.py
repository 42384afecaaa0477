"""Converting between Arrow columns and NumPy arrays, without a copy where possible.

Arrow's own conversions import pandas if it is installed, which costs every worker 20 MB for nothing.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa


def as_column(values: npt.NDArray[Any]) -> pa.Array:
    """An array of numbers or booleans as a column."""
    if values.dtype == np.bool_:
        return pl.Series(values).to_arrow()
    values = np.ascontiguousarray(values)
    return pa.Array.from_buffers(pa.from_numpy_dtype(values.dtype), len(values), [None, pa.py_buffer(values)])


def as_array(column: pa.Array | pa.ChunkedArray) -> npt.NDArray[Any]:
    """A column of numbers or booleans, without nulls, as an array."""
    return pl.Series(pl.from_arrow(column)).to_numpy()
