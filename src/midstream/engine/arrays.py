"""Arrow columns as NumPy arrays, and back, without a copy where there need be none.

Arrow has functions for that, but whatever turns Python or NumPy values into Arrow's, or the other way, first
looks for pandas and loads it where it is installed: 20 MB in every worker, for nothing.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa


def as_column(values: npt.NDArray[Any]) -> pa.Array:
    """Numbers or truth values as a column."""
    if values.dtype == np.bool_:
        return pl.Series(values).to_arrow()
    values = np.ascontiguousarray(values)
    return pa.Array.from_buffers(pa.from_numpy_dtype(values.dtype), len(values), [None, pa.py_buffer(values)])


def as_array(column: pa.Array | pa.ChunkedArray) -> npt.NDArray[Any]:
    """A column of numbers or truth values, without nulls."""
    return pl.Series(pl.from_arrow(column)).to_numpy()
