"""Converting between Arrow columns and NumPy arrays, without a copy where possible.

Arrow's own conversions import pandas if it is installed, which costs every worker 20 MB for nothing. Polars
takes 12 microseconds a column, which adds up in epochs with few rows; going by the buffers takes 2.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyarrow import types


def as_column(values: npt.NDArray[Any]) -> pa.Array:
    """An array of numbers or booleans as a column."""
    if values.dtype == np.bool_:
        bits = pa.py_buffer(np.packbits(values, bitorder="little"))
        return pa.Array.from_buffers(pa.bool_(), len(values), [None, bits])
    values = np.ascontiguousarray(values)
    return pa.Array.from_buffers(pa.from_numpy_dtype(values.dtype), len(values), [None, pa.py_buffer(values)])


def as_array(column: pa.Array | pa.ChunkedArray) -> npt.NDArray[Any]:
    """A column of numbers or booleans as a read-only array; the value at a null is undefined."""
    if isinstance(column, pa.Array):
        return _values(column)
    if column.num_chunks == 1:
        return _values(column.chunk(0))
    return np.concatenate([np.empty(0, column.type.to_pandas_dtype()), *map(_values, column.chunks)])


def is_valid(column: pa.ChunkedArray) -> npt.NDArray[np.bool_]:
    """Which values of a column are not null."""
    if not column.null_count:
        return np.ones(len(column), np.bool_)
    valid: npt.NDArray[np.bool_] = as_array(column.is_valid())
    return valid


def _values(array: pa.Array) -> npt.NDArray[Any]:
    """The values of one chunk: booleans are unpacked from bits, numbers are not copied."""
    _validity, data = array.buffers()
    kind = array.type
    if types.is_boolean(kind):
        bits = np.frombuffer(data, np.uint8) if len(array) else np.empty(0, np.uint8)
        unpacked = np.unpackbits(bits, count=array.offset + len(array), bitorder="little")[array.offset :]
        return unpacked.view(np.bool_)
    if not len(array):
        return np.empty(0, kind.to_pandas_dtype())
    values = np.frombuffer(data, kind.to_pandas_dtype(), len(array), array.offset * kind.byte_width)
    values.setflags(write=False)
    return values
