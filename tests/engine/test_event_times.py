"""Ranges of event times: those of most rows, whatever a few say."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from midstream.engine.event_times import TimeRange, common_range, robust_end, robust_range


@given(
    rows=st.integers(2, 200),
    wrong=st.lists(st.sampled_from([-(10**6), 10**6]), max_size=25),
    seed=st.integers(0, 99),
)
def test_up_to_an_eighth_of_the_rows_may_be_wrong(rows, wrong, seed):
    wrong = wrong[: max(1, rows // 8)] if rows > 2 else []
    times = np.random.default_rng(seed).permutation(np.append(np.arange(rows), np.array(wrong, np.int64)))
    found = robust_range(times.astype(np.int64), window=50)
    assert 0 <= found.start <= found.end < rows
    assert found.rows == len(times) - sum(time > 0 for time in wrong)


@pytest.mark.parametrize(("times", "end"), [([5], 5), ([5, 9], 5), ([5, 9, 7], 7), (list(range(16)), 13)])
def test_the_end_leaves_out_the_newest_rows(times, end):
    assert robust_end(np.array(times, np.int64)) == end


def test_partitions_agree_on_the_median_and_one_with_a_wrong_row_is_left_out():
    ranges = [TimeRange(0, 10, 5), TimeRange(1, 11, 5), TimeRange(900, 900, 1)]
    assert common_range(ranges, window=20) == TimeRange(1, 11, 10)
    assert common_range([TimeRange(3, 3, 1), TimeRange(900, 900, 1)], window=20) == TimeRange(3, 3, 1)
    assert common_range([], window=20) is None
