import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from midstream.engine.ordering import stable_order


def check(values):
    order = stable_order(values)
    assert np.array_equal(order, np.argsort(values, kind="stable"))


@given(st.lists(st.integers(0, 2**64 - 1) | st.sampled_from([0, 1, 2**63, 2**64 - 1])))
def test_any_hashes(values):
    check(np.array(values, np.uint64))


@given(st.lists(st.integers(-(2**63), 2**63 - 1) | st.integers(-3, 3)))
def test_any_times(values):
    check(np.array(values, np.int64))


@pytest.mark.parametrize("bits", [1, 8, 40, 60, 64])
def test_many_numbers_of_any_size(bits):
    random = np.random.default_rng(bits)
    check(random.integers(0, 2**bits - 1, 70_000, dtype=np.uint64))


def test_numbers_that_differ_only_in_dropped_bits():
    high = np.uint64(1) << np.uint64(63)
    random = np.random.default_rng(1)
    check(
        np.where(random.random(5000) < 0.5, high, 0).astype(np.uint64)
        + random.integers(0, 4, 5000, np.uint64)
    )
