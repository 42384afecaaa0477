"""Emitting windows: their panes merged to one row for each group, with the results of the aggregates."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import polars as pl
import pyarrow as pa

from midstream.aggregate.functions import FUNCTIONS
from midstream.aggregate.partials import (
    PANE,
    USER_STATE,
    WINDOW_END,
    in_context,
    key_names,
    keys_of,
    merge_partials,
    states,
)
from midstream.aggregate.user_states import results_of
from midstream.engine.arrays import as_array, as_column
from midstream.errors import StreamError
from midstream.query.aggregation import Aggregate, Aggregation, AggregationWindows
from midstream.query.types import show_type

ROWS_AT_ONCE = 1 << 20
"""About so many rows of panes are merged at once: a pane has one for each window that it is in."""
_BYTES_AT_ONCE = 1 << 28
"""And about so many bytes of them: a row may have a list of values."""


def emitted_windows(
    aggregation: Aggregation, panes: Sequence[pl.DataFrame], emitted: int | None, until: int
) -> Iterator[pa.Table]:
    """The windows that end after ``emitted`` and until ``until``, the earliest first."""
    windows = aggregation.windows
    found = [rows for rows in (_between(rows, None, until) for rows in panes) if len(rows)]
    if not found:
        return
    earliest = min(int(rows[PANE][0]) for rows in found)
    begin = earliest if emitted is None else max(emitted, earliest)
    last = max(int(rows[PANE][-1]) for rows in found) + windows.length
    first, last = windows.first_end_after(begin), min(until, last)
    for ends in portions(windows, found, first, last):
        needed = pl.concat([_between(rows, ends[0] - windows.length, ends[-1]) for rows in found])
        merged = merge_partials(aggregation, [in_windows(windows, needed, ends)], WINDOW_END)
        if len(merged):
            yield results_of_windows(aggregation, merged)


def _between(rows: pl.DataFrame, first: int | None, end: int) -> pl.DataFrame:
    """The rows of the panes from the first one to the end; rows are in the order of their panes."""
    panes = rows[PANE].to_numpy()
    begin = 0 if first is None else int(np.searchsorted(panes, first))
    return rows.slice(begin, max(0, int(np.searchsorted(panes, end)) - begin))


def portions(
    windows: AggregationWindows, panes: Sequence[pl.DataFrame], first: int, last: int
) -> Iterator[range]:
    """The ends of windows, in portions that do not need too many rows, nor too many bytes."""
    ends = range(first, last + 1, windows.slide)
    copies = min(len(ends), -(-windows.length // windows.slide))
    rows = copies * sum(len(each) for each in panes)
    size_in_bytes = copies * sum(int(each.estimated_size()) for each in panes)
    portions = max(1, -(-rows // ROWS_AT_ONCE), -(-size_in_bytes // _BYTES_AT_ONCE))
    size = max(1, len(ends) // portions)
    for begin in range(0, len(ends), size):
        yield ends[begin : begin + size]


def in_windows(windows: AggregationWindows, rows: pl.DataFrame, ends: range) -> pl.DataFrame:
    """Each row of a pane once for every window that has it and ends at one of these times."""
    panes = rows[PANE].to_numpy()
    first = np.maximum(panes + windows.slide - (panes - ends[0]) % windows.slide, ends[0])
    counts = np.maximum((np.minimum(panes + windows.length, ends[-1]) - first) // windows.slide + 1, 0)
    rows = rows.drop(PANE)
    if (counts == 1).all():
        return rows.with_columns(pl.Series(WINDOW_END, first))
    positions = np.repeat(np.arange(len(panes)), counts)
    number = np.arange(len(positions)) - np.repeat(np.cumsum(counts) - counts, counts)
    return rows[positions].with_columns(pl.Series(WINDOW_END, first[positions] + number * windows.slide))


def results_of_windows(aggregation: Aggregation, merged: pl.DataFrame) -> pa.Table:
    """Merged windows as they come out: with the results of the aggregates."""
    windows, schema = aggregation.windows, aggregation.schema
    ends = as_array(merged[WINDOW_END].to_arrow())
    bounds = [as_column(each).cast(windows.type) for each in (ends - windows.length, ends)]
    columns: list[pa.Array] = [merged[name].to_arrow() for name in key_names(aggregation)]
    columns.insert(aggregation.window_position, pa.StructArray.from_arrays(bounds, ["start", "end"]))
    for aggregate, state in states(aggregation, merged):
        with in_context(aggregate):
            if aggregate.user_class is None:
                columns.append(_finished(aggregate, state))
            else:
                keys = keys_of(aggregation, merged)
                columns.append(results_of(aggregate, state[USER_STATE].to_list(), keys))
    return pa.table([c.cast(kind) for c, kind in zip(columns, schema.types, strict=True)], schema=schema)


def _finished(aggregate: Aggregate, state: dict[str, pl.Series]) -> pa.Array:
    function = FUNCTIONS[aggregate.function]
    values = function.finish(state, aggregate.input_type, aggregate.parameters)
    fits = values.null_count() == next(iter(state.values())).null_count()
    if function.may_overflow and not fits:
        raise StreamError(
            "a sum must fit into its type, as in Spark",
            got=f"{aggregate.name}, of more than a {show_type(aggregate.type)} can hold",
            hint="cast the column to double in the DataFrame of its stream, in a new query",
        )
    return values.to_arrow().cast(aggregate.type)
