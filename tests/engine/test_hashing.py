"""The hash is part of the checkpoint format: these values never change."""

from datetime import date
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from midstream.engine.hashing import group_of, hash_key, hash_values

GOLDEN = {
    "int64": (
        pa.array([0, 1, -1, 2**63 - 1]),
        [0xE220A8397B1DCDAF, 0x910A2DEC89025CC1, 0xE4D971771B652C20, 0x2A67D7552E039EA7],
    ),
    "string": (
        pa.array(["", "x", "x\0", "a longer one than a word"]),
        [0xA706DD2F4D197E6F, 0x43EFFE16E71B225C, 0x84198ABA1FB5DA7A, 0x396AE9FB5DF6BAF4],
    ),
    "decimal": (
        pa.array([Decimal("0.00"), Decimal("1.50"), Decimal("-1.50")], pa.decimal128(20, 2)),
        [0xD700D151A7B15F33, 0x5DEC026D1C3D593C, 0xFAB8E0449D19FF0D],
    ),
    "double": (
        pa.array([0.0, 1.5, float("nan"), float("-inf")]),
        [0xE220A8397B1DCDAF, 0xD6DAB18E1392608A, 0xC72971D82E15BB46, 0x8CE2CA027CDA7FFE],
    ),
    "date": (
        pa.array([date(1970, 1, 1), date(2024, 2, 29), date(1969, 12, 31)]),
        [0xE220A8397B1DCDAF, 0xDB8C04CA25F6E90D, 0xE4D971771B652C20],
    ),
    "boolean": (pa.array([False, True]), [0xE220A8397B1DCDAF, 0x910A2DEC89025CC1]),
    "binary": (
        pa.array([b"", b"x", b"\xff" * 9]),
        [0xA706DD2F4D197E6F, 0x43EFFE16E71B225C, 0xD6CE9A304873A600],
    ),
    "timestamp": (
        pa.array([0, -1], pa.timestamp("us", tz="UTC")),
        [0xE220A8397B1DCDAF, 0xE4D971771B652C20],
    ),
}


@pytest.mark.parametrize(("values", "hashes"), GOLDEN.values(), ids=GOLDEN)
def test_hashes_are_what_they_always_were(values, hashes):
    assert hash_values(values).tolist() == hashes


def test_a_key_of_several_columns_is_what_it_always_was():
    columns = [pa.array([1, 2]), pa.array(["x", "y"]), pa.array([True, False])]
    assert hash_key(columns, 2).tolist() == [0x86C583D449597338, 0xD69566F595557A0E]
    assert hash_key(columns[::-1], 2).tolist() != hash_key(columns, 2).tolist()
    assert hash_key([], 3).tolist() == [0, 0, 0]


@pytest.mark.parametrize(("values", "hashes"), GOLDEN.values(), ids=GOLDEN)
def test_hashes_do_not_depend_on_how_the_array_lies_in_memory(values, hashes):
    padded = pa.concat_arrays([values[1:], values, values])
    for start in range(len(padded)):
        part = padded.slice(start, 2)
        alone = pa.array(part.to_pylist(), part.type)
        assert hash_values(part).tolist() == hash_values(alone).tolist()
    chunks = pa.chunked_array([values[:1], values[1:1], values[1:]])
    assert hash_values(chunks).tolist() == hashes
    assert hash_values(values[:0]).tolist() == []
    assert hash_values(pa.chunked_array([], values.type)).tolist() == []


def test_all_zeros_and_all_nans_hash_alike():
    other_nan = np.array([0x7FF8000000000123], np.uint64).view(np.float64)
    values = pa.array(np.concatenate([[0.0, -0.0, np.nan, -np.nan], other_nan]))
    hashes = hash_values(values).tolist()
    assert hashes[0] == hashes[1]
    assert len(set(hashes[2:])) == 1
    assert hash_values(pa.array([0.0, -0.0])).tolist() == hashes[:2]


@given(st.lists(st.text(max_size=30) | st.text("ab", max_size=20), max_size=20))
def test_the_hash_of_a_text_does_not_depend_on_its_position(texts):
    hashes = hash_values(pa.array(texts, pa.string())).tolist()
    assert hashes == [int(hash_values(pa.array([text]))[0]) for text in texts]
    assert hashes == hash_values(pa.array([t.encode() for t in texts], pa.binary())).tolist()
    assert len(set(hashes)) == len(set(texts))


@given(st.lists(st.integers(0, 2**64 - 1), min_size=1), st.integers(1, 1024))
def test_groups_grow_with_the_hash_and_stay_in_range(hashes, groups):
    numbers = group_of(np.array(sorted(hashes), np.uint64), groups)
    assert (np.diff(numbers) >= 0).all()
    assert 0 <= numbers.min() <= numbers.max() < groups
