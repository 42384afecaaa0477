"""Arrays are converted to columns and columns to arrays, unchanged."""

import numpy as np
import pyarrow as pa
import pytest

from midstream.engine.arrays import as_array, as_column

NUMBERS = np.array([3, 0, 2**63 - 1, 7, 5])


@pytest.mark.parametrize("kind", [np.int64, np.uint64, np.int32, np.uint16, np.float64, np.bool_])
@pytest.mark.parametrize("count", [0, 1, 5])
def test_arrays_become_columns_and_back(kind, count):
    values = NUMBERS[:count].astype(kind)
    column = as_column(values)
    assert column.type == pa.from_numpy_dtype(values.dtype)
    assert column.null_count == 0
    array = as_array(column)
    assert array.dtype == values.dtype
    assert array.tolist() == values.tolist() == column.to_pylist()


def test_an_array_with_strides_becomes_contiguous():
    assert as_column(NUMBERS[::2]).to_pylist() == NUMBERS[::2].tolist()


@pytest.mark.parametrize("kind", [pa.int64(), pa.bool_()])
def test_a_column_may_be_chunked_or_sliced(kind):
    values = pa.array([1, 0, 1, 1, 0]).cast(kind)
    chunked = pa.chunked_array([values.slice(1, 2), values.slice(0, 0), values.slice(2)], kind)
    assert as_array(values.slice(1, 3)).tolist() == values.slice(1, 3).to_pylist()
    assert as_array(chunked).tolist() == chunked.to_pylist()
    assert as_array(pa.chunked_array([], kind)).tolist() == []


def test_numbers_are_not_copied():
    column = as_column(NUMBERS)
    assert np.shares_memory(as_array(column), NUMBERS)
    assert np.shares_memory(as_array(pa.chunked_array([column])), NUMBERS)
