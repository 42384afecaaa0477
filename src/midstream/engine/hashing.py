"""The hash by which rows are placed and searched. It is part of the checkpoint format: never change it.

Libraries do not promise that their hashes stay the same between versions, and the state in a checkpoint must
be found by any later version on any machine. So the hash is our own, pinned by golden values in the tests.

For types of at most 64 bits it is one to one (an invertible finaliser), so equal hashes mean equal keys and
values need not be compared. Longer values are folded word by word; there, a join must compare values as well.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyarrow import types

from midstream.engine.arrays import as_array, as_column

Hashes = npt.NDArray[np.uint64]

# Constants of the splitmix64 generator; any odd numbers with well-mixed bits would do.
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)
# Their inverses, modulo 2 ** 64.
_UNMIX_1 = np.uint64(pow(int(_MIX_1), -1, 1 << 64))
_UNMIX_2 = np.uint64(pow(int(_MIX_2), -1, 1 << 64))
_FOLD = np.uint64(0xD6E8FEB86659FD93)
_WORD_BYTES = 8


def hash_key(columns: Sequence[pa.Array | pa.ChunkedArray], rows: int) -> Hashes:
    """Hash the values of a key, one column per key class; without columns all rows have one hash."""
    if not columns:
        return np.zeros(rows, np.uint64)
    hashes = hash_values(columns[0])
    for column in columns[1:]:
        hashes = _mix(hashes * _FOLD + hash_values(column))
    return hashes


def hash_values(values: pa.Array | pa.ChunkedArray) -> Hashes:
    """Hash a column without nulls."""
    array = _as_one(values) if isinstance(values, pa.ChunkedArray) else values
    if types.is_string(array.type) or types.is_binary(array.type):
        return _hash_bytes(array)
    if types.is_decimal(array.type):
        words = np.frombuffer(array.buffers()[1], np.uint64)
        words = words[2 * array.offset : 2 * (array.offset + len(array))].reshape(-1, 2)
        return _mix(_mix(words[:, 0]) * _FOLD + words[:, 1])
    return _mix(_as_words(array))


def _as_one(values: pa.ChunkedArray) -> pa.Array:
    """All chunks as one; a single one is not copied, unless it is empty: then it may lack buffers."""
    return values.chunk(0) if values.num_chunks == 1 and len(values) else values.combine_chunks()


def values_of_hashes(hashes: Hashes, dtype: pa.DataType) -> pa.Array:
    """The values of a column that was hashed alone, of a type whose hash is one to one."""
    words = _unmix(hashes)
    if types.is_floating(dtype):
        return as_column(words.view(np.float64)).cast(dtype)
    if types.is_boolean(dtype):
        return as_column(words.astype(np.bool_))
    if types.is_date32(dtype):
        return as_column(words.view(np.int64).astype(np.int32)).view(dtype)
    return as_column(words.view(np.int64)).view(dtype)


def group_of(hashes: Hashes, groups: int) -> npt.NDArray[np.int64]:
    """The partition group of each hash. It is monotonic: rows sorted by hash are sorted by group."""
    high = hashes >> np.uint64(32)
    return ((high * np.uint64(groups)) >> np.uint64(32)).astype(np.int64)


def group_bounds(chosen: Sequence[int], groups: int) -> tuple[Hashes, Hashes]:
    """The first and the last hash of each of some groups."""
    starts = [_first_hash(group, groups) for group in chosen]
    ends = [_first_hash(group + 1, groups) - 1 for group in chosen]
    return np.array(starts, np.uint64), np.array(ends, np.uint64)


def _first_hash(group: int, groups: int) -> int:
    return -(-(group << 32) // groups) << 32


def _mix(words: Hashes) -> Hashes:
    words = words + _GOLDEN
    words = (words ^ (words >> np.uint64(30))) * _MIX_1
    words = (words ^ (words >> np.uint64(27))) * _MIX_2
    return words ^ (words >> np.uint64(31))


def _unmix(hashes: Hashes) -> Hashes:
    """The words that were mixed: each step of the finaliser undone, the last first."""
    words: Hashes = (hashes ^ (hashes >> np.uint64(31)) ^ (hashes >> np.uint64(62))) * _UNMIX_2
    words = (words ^ (words >> np.uint64(27)) ^ (words >> np.uint64(54))) * _UNMIX_1
    words ^= (words >> np.uint64(30)) ^ (words >> np.uint64(60))
    return words - _GOLDEN


def _as_words(array: pa.Array) -> Hashes:
    words: Hashes
    if types.is_floating(array.type):
        numbers = as_array(array)
        # As Spark compares them: -0.0 equals 0.0, and every NaN equals every other.
        numbers = np.where(np.isnan(numbers), np.nan, numbers + 0.0)
        words = numbers.view(np.uint64)
        return words
    if types.is_boolean(array.type):
        words = as_array(array).astype(np.uint64)
        return words
    bits = pa.int32() if types.is_date32(array.type) else pa.int64()
    words = as_array(array.view(bits)).astype(np.int64).view(np.uint64)
    return words


def _hash_bytes(array: pa.Array) -> Hashes:
    """Fold each value's 8-byte words with a power of a constant per position, and its length."""
    offsets = np.frombuffer(array.buffers()[1], np.int32)[
        array.offset : array.offset + len(array) + 1
    ].astype(np.int64)
    lengths = np.diff(offsets)
    counts = (lengths + _WORD_BYTES - 1) // _WORD_BYTES
    total = int(counts.sum())
    if total == 0:
        return _mix(_mix(lengths.astype(np.uint64)))
    begin = offsets[0]
    data = np.zeros(int(offsets[-1] - begin) + _WORD_BYTES, np.uint8)
    data[:-_WORD_BYTES] = np.frombuffer(array.buffers()[2], np.uint8)[begin : offsets[-1]]
    first = np.cumsum(counts) - counts
    place = np.arange(total) - np.repeat(first, counts)
    starts = np.repeat(offsets[:-1] - begin, counts) + place * _WORD_BYTES
    # A value may start at any byte, so this view has a word at each byte.
    words = np.ndarray((len(data) - _WORD_BYTES + 1,), "<u8", data, strides=(1,))[starts]
    used_bytes = np.minimum(np.repeat(lengths, counts) - place * _WORD_BYTES, _WORD_BYTES).astype(np.uint64)
    words = words & (np.uint64(0xFFFFFFFFFFFFFFFF) >> (np.uint64(64) - used_bytes * np.uint64(8)))
    powers = np.cumprod(np.full(int(counts.max()), _FOLD))
    sums = np.cumsum(_mix(words) * powers[place])
    ends = np.concatenate([np.zeros(1, np.uint64), sums])
    folded = ends[first + counts] - ends[first]
    return _mix(folded + _mix(lengths.astype(np.uint64)))
