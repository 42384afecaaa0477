"""Results in the order of their latest component, whichever nodes and fragments have produced them.

While they are put in order, tables of results have one column more: the time of the latest component.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from midstream.engine.arrays import as_array, as_column
from midstream.engine.index_rows import IndexRows
from midstream.engine.joiner import Joiner
from midstream.engine.ordering import stable_order
from midstream.plan.layout import column_name
from midstream.query.clauses import Output
from midstream.query.query import schema_of

_LATEST = "#latest"


def timed_results(joiner: Joiner, rows: IndexRows, outputs: tuple[Output, ...]) -> pa.Table:
    """The columns of results of one node, in order, with their times."""
    rows = rows.take(stable_order(rows.latest()))
    columns = [(output.ref.stream, column_name(output.ref)) for output in outputs]
    table = pa.table(joiner.fetch_all(rows, columns), schema=schema_of(outputs))
    return table.append_column(_LATEST, as_column(rows.latest()))


def merge_by_time(tables: Sequence[pa.Table]) -> pa.Table:
    """Several tables of results as one, in order, with their times."""
    if len(tables) == 1:
        return tables[0]
    times = np.concatenate([as_array(table.column(_LATEST)) for table in tables])
    return pa.concat_tables(tables).take(as_column(stable_order(times)))


def without_times(table: pa.Table) -> pa.Table:
    """Results as they leave."""
    return table.drop_columns([_LATEST])
