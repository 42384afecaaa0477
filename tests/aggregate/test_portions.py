"""Many windows that leave at once do so in portions: each row of a pane is copied for each of its windows."""

from __future__ import annotations

from unittest import mock

import numpy as np
import pyarrow as pa
import pytest

from midstream.aggregate import emit
from midstream.aggregate.emit import emitted_windows
from midstream.aggregate.partials import in_order, merge_partials, partial_aggregates
from midstream.aggregate.read_aggregation import read_aggregation
from midstream.aggregate.window import window
from midstream.engine.results import TIME
from midstream.testing.random_streams import SECOND
from tests.helpers import make_stream

STREAM = make_stream("a", {"t": pa.timestamp("us"), "v": pa.float64()})
VALUES, PANES, OVERLAP = 500, 60, 20
LIST_BYTES = VALUES * PANES * OVERLAP * 8
"""What the lists of values of all windows take up, about."""


def portions(call: str) -> tuple[list[pa.Table], list[int]]:
    """What leaves, and how many bytes of panes were merged at once."""
    groups = [window(f"{OVERLAP} seconds", "1 second")]
    aggregation = read_aggregation(groups, [f"{call} AS x"], [STREAM])
    times = np.repeat(np.arange(PANES) * SECOND, VALUES)
    values = np.random.default_rng(7).random(len(times))
    panes = in_order(partial_aggregates(aggregation, pa.table({"a.v": values, TIME: times})))
    merged = []

    def measured(aggregation, tables, by):
        merged.append(sum(table.estimated_size() for table in tables))
        return merge_partials(aggregation, tables, by)

    with mock.patch.object(emit, "merge_partials", measured):
        return list(emitted_windows(aggregation, [panes], None, 2 * PANES * SECOND)), merged


@pytest.mark.parametrize("call", ["median(a.v)", "collect_list(a.v)", "count(DISTINCT a.v)"])
def test_windows_with_many_values_leave_in_portions_of_some_bytes(call):
    (whole,), merged = portions(call)
    assert LIST_BYTES < merged[0] < 1.1 * LIST_BYTES, "each list once for each window"
    with mock.patch.object(emit, "_BYTES_AT_ONCE", LIST_BYTES // 10):
        tables, merged = portions(call)
    assert 10 <= len(tables) <= 13
    assert max(merged) < 1.5 * LIST_BYTES // 10
    assert pa.concat_tables(tables).equals(whole)


def test_windows_with_few_values_leave_at_once():
    with mock.patch.object(emit, "_BYTES_AT_ONCE", LIST_BYTES // 10):
        assert len(portions("sum(a.v)")[0]) == 1
