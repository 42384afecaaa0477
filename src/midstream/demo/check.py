"""Checking the demo: the same query as one batch join by DuckDB, over the rows that were not late.

Rows are compared as multisets: no result may be missing, repeated or wrong.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from midstream.query.query import Query
from midstream.testing.compare import assert_same_rows
from midstream.testing.oracle import batch_join


@dataclass(frozen=True)
class Comparison:
    """Whether the results are right."""

    results: int
    expected: int
    problem: str | None
    """What differs, with examples; None if nothing does."""

    def __str__(self) -> str:
        if self.problem is None:
            return f"{self.results:,} results, equal to DuckDB's batch join"
        return f"{self.results:,} results, not equal to DuckDB's batch join, which has {self.expected:,}"


def check_results(query: Query, streams: Mapping[str, Sequence[pa.Table]], results: Path) -> Comparison:
    """Compare a folder of results with the batch join of the epochs of every stream."""
    tables = {name: accepted(query, name, epochs) for name, epochs in streams.items()}
    return compare(read_results(query, results), batch_join(query, tables))


def compare(got: pa.Table, want: pa.Table) -> Comparison:
    """Compare two tables as multisets of rows."""
    # Sorting is fast, and enough if the tables are equal. Only a difference needs the slow comparison.
    order = [(name, "ascending") for name in want.column_names]
    problem = None
    if got.num_rows != want.num_rows or got.sort_by(order) != want.sort_by(order):
        try:
            assert_same_rows(got, want)
        except AssertionError as difference:
            problem = str(difference)
    return Comparison(got.num_rows, want.num_rows, problem)


def accepted(query: Query, name: str, epochs: Sequence[pa.Table]) -> pa.Table:
    """The rows of a stream that take part in the join: those with keys that are not late.

    A row is late if it is older than the newest row of earlier epochs by more than the lateness.
    """
    stream = query.by_name[name]
    keys = [ref.path[0] for key_class in query.classes for ref in key_class.of(name)]
    newest: int | None = None
    accepted_rows = []
    for epoch in epochs:
        rows = epoch.filter(reduce(pc.and_, (pc.is_valid(epoch.column(key)) for key in keys)))
        times = rows.column(stream.time.path[0]).cast(pa.int64())
        if newest is not None:
            in_time = pc.greater_equal(times, newest - stream.lateness)
            rows, times = rows.filter(in_time), times.filter(in_time)
        latest = pc.max(times).as_py()
        newest = max((time for time in (newest, latest) if time is not None), default=None)
        accepted_rows.append(rows.cast(stream.schema))
    return pa.concat_tables([stream.schema.empty_table(), *accepted_rows])


def read_results(query: Query, folder: Path) -> pa.Table:
    """All results in a folder."""
    files = sorted(folder.glob("*.parquet"))
    tables = [pq.read_table(path).cast(query.output_schema) for path in files]
    return pa.concat_tables([query.output_schema.empty_table(), *tables])
