"""Counts of rows by partition group."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from midstream.engine.group_counts import (
    RESULTS,
    count_flows,
    count_groups,
    count_results,
    read_flows,
    read_groups,
)
from midstream.engine.hashing import group_bounds, group_of

HASHES = st.lists(st.integers(0, 2**64 - 1), max_size=30).map(lambda values: np.array(values, np.uint64))


@given(HASHES, st.integers(1, 9))
def test_rows_of_each_group_are_counted(hashes, groups):
    counts = read_groups(count_groups(np.sort(hashes), groups), groups)
    assert counts.tolist() == [(group_of(hashes, groups) == group).sum() for group in range(groups)]


@given(HASHES, st.integers(1, 9))
def test_a_group_has_the_hashes_between_its_bounds(hashes, groups):
    first, last = group_bounds(range(groups), groups)
    for group in range(groups):
        within = (hashes >= first[group]) & (hashes <= last[group])
        assert within.tolist() == (group_of(hashes, groups) == group).tolist()


@given(HASHES, st.integers(1, 9))
def test_flows_have_both_groups(hashes, groups):
    receivers = hashes[::-1].copy()
    sources, targets, rows = read_flows(count_flows(hashes, receivers, groups))
    pairs = list(zip(group_of(hashes, groups).tolist(), group_of(receivers, groups).tolist(), strict=True))
    counted = dict(zip(zip(sources.tolist(), targets.tolist(), strict=True), rows.tolist(), strict=True))
    assert counted == {pair: pairs.count(pair) for pair in pairs}


@given(HASHES, st.integers(1, 9))
def test_results_are_counted_by_their_group(hashes, groups):
    sources, targets, rows = read_flows(count_results(np.sort(hashes), groups))
    assert set(targets.tolist()) <= {RESULTS}
    of_group = [(group_of(hashes, groups) == group).sum() for group in range(groups)]
    assert np.bincount(sources, rows, minlength=groups).tolist() == of_group


def test_many_rows_are_counted_from_a_sample():
    hashes = np.arange(0, 1 << 63, 1 << 48, dtype=np.uint64)
    sources, targets, rows = read_flows(count_flows(hashes, hashes, 4))
    assert sources.tolist() == targets.tolist() == [0, 1]
    assert abs(rows - len(hashes) / 2).max() <= len(hashes) / 1024
