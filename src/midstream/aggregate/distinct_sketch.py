"""Counting distinct values approximately, in bounded state: HyperLogLog.

A value's hash chooses one of m registers, which keeps the largest number of leading zeros, plus one, that
the rest of a hash had. A state is a list of codes, one for each register that is not empty, so few values
take little space. The estimate is that of O. Ertl, *New cardinality estimation algorithms for HyperLogLog
sketches* (2017), which needs no tables and is as good for few values as for many.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

from midstream.engine.arrays import as_array, as_column
from midstream.engine.hashing import hash_values
from midstream.query.aggregation import Parameter
from midstream.query.types import canonical_type

MIN_ERROR, MAX_ERROR = 0.005, 0.39
"""The relative standard deviations that can be asked for: Spark's largest, and 65536 registers."""
_RANKS = 64
"""More than a rank can be: a code is its register times this, plus the rank."""
_HASH_BITS = 64

_Floats = npt.NDArray[np.float64]


def _precision(error: float) -> int:
    """The logarithm of the number of registers for a relative standard deviation, as Spark chooses it."""
    return max(4, math.ceil(2.0 * math.log2(1.106 / error)))


def sketch_codes(column: pa.ChunkedArray, parameters: tuple[Parameter, ...]) -> pa.ChunkedArray:
    """For each value the register that its hash chooses, and the rank of the rest; null for null."""
    precision = _precision(float(parameters[0]))
    valid = as_array(column.is_valid())
    hashes = hash_values(column.drop_null().cast(canonical_type(column.type)).combine_chunks())
    registers = hashes >> np.uint64(_HASH_BITS - precision)
    # A bit after the last one ends the count if all others are zero.
    rest = (hashes << np.uint64(precision)) | np.uint64(1 << (precision - 1))
    ranks = _HASH_BITS + 1 - np.frexp(_high_bits(rest))[1].astype(np.int64)
    codes = np.zeros(len(column), np.uint32)
    codes[valid] = registers.astype(np.int64) * _RANKS + ranks
    array = as_column(codes)
    return pa.chunked_array(
        [pa.Array.from_buffers(array.type, len(array), [_bitmap(valid), array.buffers()[1]])]
    )


def merge_codes(codes: pl.Expr) -> pl.Expr:
    """The largest code of each register."""
    ordered = codes.drop_nulls().unique().sort()
    register = ordered // _RANKS
    return ordered.filter((register != register.shift(-1)).fill_null(value=True))


def estimates(lists: pl.Series, error: float) -> pl.Series:
    """How many distinct values each sketch has seen."""
    precision = _precision(error)
    m, q = 1 << precision, _HASH_BITS - precision
    counts = lists.list.len().to_numpy().astype(np.int64)
    codes = as_array(lists.list.explode(empty_as_null=False).to_arrow()).astype(np.int64)
    rows = np.repeat(np.arange(len(counts)), counts)
    histogram = np.bincount(rows * (q + 2) + codes % _RANKS, minlength=len(counts) * (q + 2))
    of_rank = histogram.reshape(len(counts), q + 2).astype(np.float64)
    z = m * _tau(1.0 - of_rank[:, q + 1] / m)
    for rank in range(q, 0, -1):
        z = 0.5 * (z + of_rank[:, rank])
    z += m * _sigma((m - counts) / m)
    values = np.where(counts == 0, 0.0, m * m / (2.0 * math.log(2.0) * z))
    return pl.Series(np.rint(values).astype(np.int64))


def _high_bits(words: npt.NDArray[np.uint64]) -> _Floats:
    """Numbers with the same highest bit, and few enough bits to be exact."""
    high = words >> np.uint64(11)
    return np.where(high > 0, high.astype(np.float64) * 2048.0, (words & np.uint64(2047)).astype(np.float64))


def _bitmap(valid: npt.NDArray[np.bool_]) -> pa.Buffer:
    return pa.py_buffer(np.packbits(valid, bitorder="little"))


def _sigma(x: _Floats) -> _Floats:
    """X + the sum over k of x^(2^k) 2^(k-1); infinite at 1, where a sketch is empty."""
    total, weight, power = x.copy(), 1.0, np.where(x < 1.0, x, 0.0)
    for _ in range(_HASH_BITS):
        power = power * power
        total += power * weight
        weight += weight
    return total


def _tau(x: _Floats) -> _Floats:
    """A third of 1 - x - the sum over k of (1 - x^(2^-k))^2 2^-k; 0 at 0 and at 1."""
    inside = (x > 0.0) & (x < 1.0)
    power = np.where(inside, x, 1.0)
    total, weight = 1.0 - power, 1.0
    for _ in range(_HASH_BITS):
        power = np.sqrt(power)
        weight *= 0.5
        total -= (1.0 - power) ** 2 * weight
    return np.where(inside, total / 3.0, 0.0)
