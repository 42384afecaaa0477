"""Counts of rows by partition group."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from midstream.engine.group_counts import RESULTS, count_flows, count_groups, read_flows, read_groups
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


@given(HASHES, st.integers(1, 9), st.integers(1, 3))
def test_flows_have_both_groups(hashes, groups, scale):
    receivers = hashes[::-1].copy()
    sources, targets, rows = read_flows(count_flows(hashes, receivers, groups, scale))
    pairs = list(zip(group_of(hashes, groups).tolist(), group_of(receivers, groups).tolist(), strict=True))
    counted = dict(zip(zip(sources.tolist(), targets.tolist(), strict=True), rows.tolist(), strict=True))
    assert counted == {pair: scale * pairs.count(pair) for pair in pairs}
    _, targets, rows = read_flows(count_flows(hashes, None, groups, scale))
    assert set(targets.tolist()) <= {RESULTS}
    assert rows.sum() == scale * len(hashes)
