import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from midstream.engine import probe

HASHES = st.lists(st.integers(0, 6), max_size=25).map(lambda v: np.array(sorted(v), np.uint64))


@given(HASHES, HASHES, st.sampled_from([1, 2, 3, 5, 1000]))
def test_all_pairs_are_found_once_in_order_and_in_portions(needles, state, portion):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(probe, "CANDIDATES_AT_ONCE", portion)
        portions = [(left.tolist(), right.tolist()) for left, right in probe.matches(needles, state)]
    assert all(0 < len(left) == len(right) <= portion for left, right in portions)
    found = [pair for left, right in portions for pair in zip(left, right, strict=True)]
    assert found == [(i, j) for i, x in enumerate(needles) for j, y in enumerate(state) if x == y]
