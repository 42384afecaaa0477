"""What a run must come to, epoch by epoch, by definitions that share no code with the engine.

The results are those of a batch join by DuckDB. Which rows take part in it, and what becomes of the others,
is said by :mod:`midstream.testing.reference`.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from midstream.query.query import Query
from midstream.testing.oracle import matching_rows, outputs
from midstream.testing.reference import Accepted, Fate, accept, micros, value_of
from midstream.testing.workload import Workload

_LATE = pa.schema(
    [
        *(("stream", pa.string()), ("reason", pa.string()), ("batchId", pa.int64()), ("time", pa.int64())),
        *(("id", pa.int64()), ("k", pa.int64()), ("k2", pa.string()), ("v", pa.int64())),
    ]
)


class Expected:
    """All that a run of a workload must come to."""

    def __init__(self, workload: Workload) -> None:
        query = workload.query
        self.query = query
        # One more epoch, without rows: the simulator ends every run with it.
        self.accepted = accept(query, [*workload.epochs, {}], workload.settings.idle_timeout)
        self.tables: dict[str, list[pa.Table]] = {
            "results": _results_by_epoch(query, self.accepted),
            "late": [_late_of(query, epoch, tables) for epoch, tables in enumerate(self.accepted.late)],
        }
        """What is published in each epoch."""

    def fates(self, epoch: int) -> Mapping[str, Fate]:
        """What has become of the rows of each stream up to an epoch."""
        return self.accepted.history[epoch] if epoch >= 0 else {name: Fate() for name in self.query.names}

    def times(self, name: str, epoch: int, since: int = 0) -> Counter[int]:
        """The times of the rows of a stream that were accepted from one epoch on up to another."""
        tables = [tables[name] for tables in self.accepted.epochs[since : epoch + 1] if name in tables]
        return Counter(
            time for table in tables for time in _times(self.query, name, table) if time is not None
        )

    def has_expired(self, name: str, time: int, epoch: int) -> bool:
        """Whether no row yet to come, from ``epoch`` on, can meet a row of a stream with this time."""
        for other, fate in self.fates(epoch - 1).items():
            bound = self.query.windows.bound(name, other) if other != name else None
            if other != name and (bound is None or fate.watermark is None or time >= fate.watermark - bound):
                return False
        return True


def late_rows_of(published: pa.Table) -> pa.Table:
    """Published late rows, in the form in which they are expected."""
    rows = [{**json.loads(row["row"]), **row, "time": micros(row["time"])} for row in published.to_pylist()]
    return pa.Table.from_pylist(rows, schema=_LATE)


def _results_by_epoch(query: Query, accepted: Accepted) -> list[pa.Table]:
    """A result belongs to the epoch of its newest row, so one join tells what every epoch must give."""
    tables = accepted.tables(query)
    found = matching_rows(query, tables)
    epochs = range(len(accepted.epochs))
    arrival = {
        name: np.repeat(epochs, [e[name].num_rows if name in e else 0 for e in accepted.epochs])
        for name in query.names
    }
    newest = np.max([arrival[n][found.column(n).to_numpy()] for n in query.names], axis=0, initial=0)
    return [outputs(query, tables, found.filter(pa.array(newest == epoch))) for epoch in epochs]


def _late_of(query: Query, epoch: int, tables: Mapping[str, pa.Table]) -> pa.Table:
    rows = []
    for name, table in tables.items():
        for row, time in zip(table.to_pylist(), _times(query, name, table), strict=True):
            reason = "null time" if time is None else "late"
            rows.append({**row, "stream": name, "reason": reason, "batchId": epoch, "time": time})
    return pa.Table.from_pylist(rows, schema=_LATE)


def _times(query: Query, name: str, table: pa.Table) -> list[int | None]:
    return [micros(value_of(row, query.by_name[name].time)) for row in table.to_pylist()]
