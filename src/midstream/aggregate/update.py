"""Updating: the windows and groups that new results have changed, with their current values.

The work follows what has changed: of the slices, only the rows of groups with new results are read, and of
these only those in panes that share a window with a new result.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

from midstream.aggregate.emit import ROWS_AT_ONCE, in_windows, portions, results_of_windows
from midstream.aggregate.partials import HASH, PANE, WINDOW_END, in_order, key_names, merge_partials
from midstream.engine.arrays import as_array, as_column
from midstream.engine.hot_keys import expand_ranges, search_ranges
from midstream.query.aggregation import Aggregation, AggregationWindows


def updated_windows(
    aggregation: Aggregation, arrived: pl.DataFrame, stored: Sequence[pa.Table]
) -> Iterator[pa.Table]:
    """The windows and groups of partial aggregates that have arrived, with what is stored of them."""
    for some in _some_groups(aggregation.windows, arrived):
        yield from _updated(aggregation, some, stored)


def _some_groups(windows: AggregationWindows, arrived: pl.DataFrame) -> Iterator[pl.DataFrame]:
    """Whole groups, so many that not too many panes are near them."""
    rows_at_once = max(1, ROWS_AT_ONCE // len(_steps(windows)))
    if len(arrived) <= rows_at_once:
        yield arrived
        return
    by_group = arrived.sort(HASH, maintain_order=True)
    hashes = by_group[HASH].to_numpy()
    cuts = np.unique(np.searchsorted(hashes, hashes[::rows_at_once])).tolist()
    for begin, end in pairwise([*cuts, len(hashes)]):
        yield in_order(by_group[begin:end])


def _updated(
    aggregation: Aggregation, arrived: pl.DataFrame, stored: Sequence[pa.Table]
) -> Iterator[pa.Table]:
    windows = aggregation.windows
    near = _near(windows, arrived)
    found = [pl.DataFrame(pl.from_arrow(rows)) for rows in (_find(table, near) for table in stored)]
    found = [*(rows for rows in found if len(rows)), arrived]
    first = windows.first_end_after(int(arrived[PANE][0]))
    last = int(arrived[PANE][-1]) + windows.length
    by = [WINDOW_END, HASH, *key_names(aggregation)]
    for ends in portions(windows, found, first, last):
        changed = in_windows(windows, arrived, ends).select(by)
        spread = (in_windows(windows, rows, ends) for rows in found)
        needed = [
            rows.join(changed, on=by, how="semi", nulls_equal=True, maintain_order="left") for rows in spread
        ]
        if len(changed):
            yield results_of_windows(aggregation, merge_partials(aggregation, needed, WINDOW_END))


def _near(windows: AggregationWindows, rows: pl.DataFrame) -> pl.DataFrame:
    """The panes and groups that may be in a window with some of these rows, each once."""
    steps = _steps(windows)
    panes = (rows[PANE].to_numpy()[:, None] + steps).ravel()
    hashes = np.repeat(rows[HASH].to_numpy(), len(steps))
    return pl.DataFrame({PANE: panes, HASH: hashes}).unique(maintain_order=True).sort(PANE, HASH)


def _steps(windows: AggregationWindows) -> npt.NDArray[np.int64]:
    """How much earlier or later panes may be that are in one window."""
    return np.arange(windows.pane - windows.length, windows.length, windows.pane)


def _find(table: pa.Table, sought: pl.DataFrame) -> pa.Table:
    """The stored rows of these panes and groups. They are in the order of their panes, and of hashes."""
    stored, hashes = as_array(table.column(PANE)), as_array(table.column(HASH))
    panes, groups = sought[PANE].to_numpy(), sought[HASH].to_numpy()
    low, high = np.searchsorted(stored, panes), np.searchsorted(stored, panes, side="right")
    low = search_ranges(hashes, low, high, groups, after=False)
    high = search_ranges(hashes, low, high, groups, after=True)
    return table.take(as_column(expand_ranges(low, high - low)))
