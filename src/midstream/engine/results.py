"""Results in the order of their latest component, whichever nodes and fragments have produced them.

While they are put in order, tables of results have one column more: the time of the latest component. Those
that are aggregated keep it: they have the event time by which their windows are chosen.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from midstream.engine.arrays import as_array, as_column
from midstream.engine.index_rows import IndexRows
from midstream.engine.joiner import Joiner
from midstream.engine.ordering import stable_order
from midstream.engine.references import Integers
from midstream.plan.layout import column_name
from midstream.query.clauses import Output
from midstream.query.query import Query, schema_of

TIME = "#time"
"""The column of times, in microseconds: the last one. A user's column may have the same name, unless results
are aggregated: then theirs begin with the name of a stream."""


def timed_results(joiner: Joiner, rows: IndexRows, outputs: tuple[Output, ...]) -> pa.Table:
    """The columns of results of one node, in order unless they are aggregated, with their times."""
    if joiner.query.aggregation is None:
        rows = rows.take(stable_order(_times(joiner.query, rows)))
    columns = [(output.ref.stream, column_name(output.ref)) for output in outputs]
    schema = schema_of(outputs).append(pa.field(TIME, pa.int64()))
    times = as_column(_times(joiner.query, rows))
    return pa.table([*joiner.fetch_all(rows, columns), times], schema=schema)


def merge_by_time(query: Query, tables: Sequence[pa.Table]) -> pa.Table:
    """Several tables of results as one, in order unless they are aggregated, with their times."""
    if query.aggregation is not None or len(tables) == 1:
        return pa.concat_tables(tables)
    times = np.concatenate([as_array(table.columns[-1]) for table in tables])
    return pa.concat_tables(tables).take(as_column(stable_order(times)))


def without_times(query: Query, table: pa.Table) -> pa.Table:
    """Results as they leave: without their times, unless they are aggregated."""
    return table.select(range(table.num_columns - 1)) if query.aggregation is None else table


def _times(query: Query, rows: IndexRows) -> Integers:
    """The times of results: of their latest components, or if so asked, of those of one stream."""
    stream = None if query.aggregation is None else query.aggregation.windows.stream
    return rows.latest() if stream is None else rows.times[stream]
