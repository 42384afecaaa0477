"""What a run must come to, epoch by epoch, by definitions that share no code with the engine.

The results are those of a batch join by DuckDB. Which rows take part in it, and what becomes of the others,
is said by :mod:`midstream.testing.reference`. Both depend on the options with which each epoch was begun, so
what is expected of an epoch is known once it was.
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
from midstream.testing.reference import Accepted, Fate, Terms, accept_epoch, times_of

_LATE = pa.schema(
    [
        *(("stream", pa.string()), ("reason", pa.string()), ("batchId", pa.int64()), ("time", pa.int64())),
        *(("id", pa.int64()), ("k", pa.int64()), ("k2", pa.string()), ("v", pa.int64())),
    ]
)


class Expected:
    """All that a run must come to, as far as it has gone."""

    def __init__(self, query: Query) -> None:
        self.query = query
        self.accepted = Accepted(fates={name: Fate() for name in query.names})
        self.tables: dict[str, list[pa.Table]] = {"results": [], "late": []}
        """What is published in each epoch."""

    def begin(self, epoch: int, rows: Mapping[str, pa.Table], terms: Terms) -> None:
        """An epoch is begun, on these terms; if it was begun before, on others, those did not count."""
        accepted = self.accepted
        pasts = (accepted.epochs, accepted.late, accepted.reasons, accepted.history, *self.tables.values())
        for past in pasts:
            del past[epoch:]
        before = accepted.history[-1] if accepted.history else {}
        accepted.fates = {name: replace(before.get(name, Fate())) for name in self.query.names}
        accept_epoch(self.query, accepted, rows, terms)
        self.tables["results"].append(_results_of(self.query, accepted, epoch))
        self.tables["late"].append(_late_of(self.query, epoch, accepted))

    def fates(self, epoch: int) -> Mapping[str, Fate]:
        """What has become of the rows of each stream up to an epoch."""
        return self.accepted.history[epoch] if epoch >= 0 else {name: Fate() for name in self.query.names}

    def times(self, name: str, epoch: int, since: int = 0) -> Counter[int]:
        """The times of the rows of a stream that were accepted from one epoch on up to another."""
        tables = [tables[name] for tables in self.accepted.epochs[since : epoch + 1] if name in tables]
        return Counter(
            time for table in tables for time in times_of(self.query, name, table) if time is not None
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
    at = published.column_names.index("time")
    published = published.set_column(at, "time", published.column("time").cast(pa.int64()))
    rows = [{**json.loads(row["row"]), **row} for row in published.to_pylist()]
    return pa.Table.from_pylist(rows, schema=_LATE)


def _results_of(query: Query, accepted: Accepted, epoch: int) -> pa.Table:
    """The results of an epoch are those whose newest row it brought."""
    tables = accepted.tables(query)
    found = matching_rows(query, tables)
    new = [found.column(n).to_numpy() >= _rows_before(accepted, n, epoch) for n in query.names]
    return outputs(query, tables, found.filter(pa.array(np.any(new, axis=0))))


def _rows_before(accepted: Accepted, name: str, epoch: int) -> int:
    return sum(tables[name].num_rows for tables in accepted.epochs[:epoch] if name in tables)


def _late_of(query: Query, epoch: int, accepted: Accepted) -> pa.Table:
    found = []
    for name, table in accepted.late[epoch].items():
        count = table.num_rows
        columns = [
            pa.array([name] * count, pa.string()),
            pa.array(accepted.reasons[epoch][name], pa.string()),
            pa.array([epoch] * count, pa.int64()),
            pa.array(times_of(query, name, table), pa.int64()),
            *(table.column(c).cast(_LATE.field(c).type) for c in ("id", "k", "k2", "v")),
        ]
        found.append(pa.table(columns, schema=_LATE))
    return pa.concat_tables([_LATE.empty_table(), *found])
