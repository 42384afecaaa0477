"""The expected results of a run, epoch by epoch, by definitions that share no code with the engine.

The results are those of a batch join by DuckDB. :mod:`midstream.testing.reference` defines which rows are
joined and which are late. Both depend on the options of each epoch, so they are known when it has begun.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pyarrow as pa

from midstream.query.query import Query
from midstream.testing.oracle import matching_rows, outputs
from midstream.testing.reference import Accepted, AcceptRules, ExpectedProgress, accept_epoch, times_of

_LATE = pa.schema(
    [
        *(("stream", pa.string()), ("reason", pa.string()), ("batchId", pa.int64()), ("time", pa.int64())),
        *(("id", pa.int64()), ("k", pa.int64()), ("k2", pa.string()), ("v", pa.int64())),
    ]
)


class Expected:
    """What a run must have published and counted, up to its last epoch."""

    def __init__(self, query: Query) -> None:
        self.query = query
        self.accepted = Accepted(progress={name: ExpectedProgress() for name in query.names})
        self.tables: dict[str, list[pa.Table]] = {"results": [], "late": []}
        """What is published in each epoch."""

    def begin(self, epoch: int, rows: Mapping[str, pa.Table], rules: AcceptRules) -> None:
        """Add an epoch; if it was begun before, with other options, that is forgotten."""
        accepted = self.accepted
        by_epoch = (accepted.epochs, accepted.late, accepted.reasons, accepted.history, *self.tables.values())
        for entries in by_epoch:
            del entries[epoch:]
        before = accepted.history[-1] if accepted.history else {}
        accepted.progress = {n: replace(before.get(n, ExpectedProgress())) for n in self.query.names}
        accept_epoch(self.query, accepted, rows, rules)
        self.tables["results"].append(_results_of(self.query, accepted, epoch))
        self.tables["late"].append(_late_of(self.query, epoch, accepted))

    def progress(self, epoch: int) -> Mapping[str, ExpectedProgress]:
        """The progress of each stream after an epoch."""
        if epoch < 0:
            return {name: ExpectedProgress() for name in self.query.names}
        return self.accepted.history[epoch]

    def times(self, name: str, epoch: int, since: int = 0) -> Counter[int]:
        """The times of the rows of a stream that were accepted from epoch ``since`` to ``epoch``."""
        tables = [tables[name] for tables in self.accepted.epochs[since : epoch + 1] if name in tables]
        return Counter(
            time for table in tables for time in times_of(self.query, name, table) if time is not None
        )

    def has_expired(self, name: str, time: int, epoch: int) -> bool:
        """Whether no row that arrives from ``epoch`` on can join with a row of a stream with this time."""
        for other, progress in self.progress(epoch - 1).items():
            if other == name:
                continue
            bound, watermark = self.query.windows.bound(name, other), progress.watermark
            if bound is None or watermark is None or time >= watermark - bound:
                return False
        return True


def late_rows_of(published: pa.Table) -> pa.Table:
    """Published late rows, in the form of the expected ones."""
    position = published.column_names.index("time")
    published = published.set_column(position, "time", published.column("time").cast(pa.int64()))
    rows = [{**json.loads(row["row"]), **row} for row in published.to_pylist()]
    return pa.Table.from_pylist(rows, schema=_LATE)


def _results_of(query: Query, accepted: Accepted, epoch: int) -> pa.Table:
    """The results of an epoch: those with a row that arrived in it."""
    tables = accepted.tables(query)
    matches = matching_rows(query, tables)
    is_new = [matches.column(n).to_numpy() >= _rows_before(accepted, n, epoch) for n in query.names]
    return outputs(query, tables, matches.filter(pa.array(np.any(is_new, axis=0))))


def _rows_before(accepted: Accepted, name: str, epoch: int) -> int:
    return sum(tables[name].num_rows for tables in accepted.epochs[:epoch] if name in tables)


def _late_of(query: Query, epoch: int, accepted: Accepted) -> pa.Table:
    tables = []
    for name, table in accepted.late[epoch].items():
        count = table.num_rows
        columns = [
            pa.array([name] * count, pa.string()),
            pa.array(accepted.reasons[epoch][name], pa.string()),
            pa.array([epoch] * count, pa.int64()),
            pa.array(times_of(query, name, table), pa.int64()),
            *(table.column(c).cast(_LATE.field(c).type) for c in ("id", "k", "k2", "v")),
        ]
        tables.append(pa.table(columns, schema=_LATE))
    return pa.concat_tables([_LATE.empty_table(), *tables])
