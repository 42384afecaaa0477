"""The expected results of a run, epoch by epoch, by definitions that share no code with the engine.

Which rows match is found by a batch join by DuckDB. :mod:`midstream.testing.reference` defines which rows are
accepted and which are late. Only the latter, and which rows are near enough in time, depends on the options
and terms of each epoch, so a run needs one batch join of all its rows; what is expected of an epoch is known
when it has begun.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import combinations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from midstream.query.query import Query
from midstream.query.window import Windows
from midstream.testing.oracle import matching_rows, outputs
from midstream.testing.reference import Accepted, AcceptRules, ExpectedProgress, accept_epoch, times_of

_LATE = pa.schema(
    [
        *(("stream", pa.string()), ("reason", pa.string()), ("batchId", pa.int64()), ("time", pa.int64())),
        *(("id", pa.int64()), ("k", pa.int64()), ("k2", pa.string()), ("v", pa.int64())),
    ]
)
_NUMBER = "#number"
"""The column with the number of a row among all rows of its stream."""


class Expected:
    """What a run must have published and counted, up to its last epoch."""

    def __init__(self, query: Query, epochs: Sequence[Mapping[str, pa.Table]]) -> None:
        """Of a query over the rows of these epochs; epochs without rows may follow.

        Its windows must be as wide as those of any epoch.
        """
        self.query = query
        self.queries: list[Query] = []
        """The query on the terms of each epoch."""
        self.accepted = Accepted(progress={name: ExpectedProgress() for name in query.names})
        self.tables: dict[str, list[pa.Table]] = {"results": [], "late": []}
        """What is published in each epoch; results with all columns that the states keep."""
        self._epochs = epochs
        self._accepted_rows: list[dict[str, npt.NDArray[np.int64]]] = []
        """The numbers of the rows that were accepted in each epoch."""

    def begin(self, epoch: int, rules: AcceptRules, query: Query) -> None:
        """Add an epoch with the query on its terms; if it was begun before, that is forgotten."""
        accepted = self.accepted
        by_epoch = (accepted.epochs, accepted.late, accepted.reasons, accepted.history, self._accepted_rows)
        for entries in (*by_epoch, *self.tables.values(), self.queries):
            del entries[epoch:]
        self.queries.append(query)
        before = accepted.history[-1] if accepted.history else {}
        accepted.progress = {n: replace(before.get(n, ExpectedProgress())) for n in self.query.names}
        accept_epoch(query, accepted, self._numbered(epoch), rules)
        tables = accepted.epochs[-1]
        self._accepted_rows.append({name: table.column(_NUMBER).to_numpy() for name, table in tables.items()})
        accepted.epochs[-1] = {name: table.drop_columns([_NUMBER]) for name, table in tables.items()}
        self.tables["results"].append(self._results_of(epoch))
        self.tables["late"].append(_late_of(self.query, epoch, accepted))

    def progress(self, epoch: int) -> Mapping[str, ExpectedProgress]:
        """The progress of each stream after an epoch."""
        if epoch < 0:
            return {name: ExpectedProgress() for name in self.query.names}
        return self.accepted.history[epoch]

    def arrivals(self, name: str, epoch: int, since: int = 0) -> Counter[tuple[int, int]]:
        """The rows of a stream that were accepted from epoch ``since`` to ``epoch``: by epoch and time."""
        return Counter(
            (arrival, time)
            for arrival, tables in enumerate(self.accepted.epochs[since : epoch + 1], since)
            for time in (times_of(self.query, name, tables[name]) if name in tables else ())
            if time is not None
        )

    def has_expired(self, name: str, arrival: int, time: int, epoch: int) -> bool:
        """Whether no row that arrives from ``epoch`` on can join with a row of a stream.

        None can if none could at some time since it arrived, by the windows of then.
        """
        return any(
            self._is_out_of_reach(name, time, later, windows)
            for later in range(arrival + 1, epoch + 1)
            for windows in {query.windows for query in self.queries[later - 1 : later + 1]}
        )

    def _is_out_of_reach(self, name: str, time: int, epoch: int, windows: Windows) -> bool:
        for other, progress in self.progress(epoch - 1).items():
            if other == name:
                continue
            bound, watermark = windows.bound(name, other), progress.watermark
            if bound is None or watermark is None or time >= watermark - bound:
                return False
        return True

    def common_outputs(self, epochs: Sequence[int]) -> list[str]:
        """The columns that the results of all these epochs have, by the names that the states keep."""
        selected = [{output.ref for output in self.queries[epoch].outputs} for epoch in epochs]
        return [output.name for output in self.query.kept if all(output.ref in refs for refs in selected)]

    def named_as_kept(self, epoch: int, results: pa.Table) -> pa.Table:
        """Results of an epoch by the names that the states keep; they must have its outputs, in its order."""
        query = self.queries[epoch]
        names = {output.ref: output.name for output in self.query.kept}
        want = query.output_schema
        assert results.schema == want, f"columns must be {want.names}; got {results.schema.names}"
        return results.rename_columns([names[output.ref] for output in query.outputs])

    def _numbered(self, epoch: int) -> dict[str, pa.Table]:
        """The rows of an epoch, with their numbers."""
        rows = self._epochs[epoch] if epoch < len(self._epochs) else {}
        return {
            name: table.append_column(
                _NUMBER, pa.array(self._rows_before(epoch, name) + np.arange(table.num_rows))
            )
            for name, table in rows.items()
        }

    def _rows_before(self, epoch: int, name: str) -> int:
        return sum(rows[name].num_rows for rows in self._epochs[:epoch] if name in rows)

    @cached_property
    def _rows(self) -> dict[str, pa.Table]:
        """All rows of every stream, accepted or not."""
        return {
            s.name: pa.concat_tables(
                [s.schema.empty_table(), *(rows[s.name] for rows in self._epochs if s.name in rows)]
            )
            for s in self.query.streams
        }

    @cached_property
    def _matches(self) -> pa.Table:
        """The combinations of rows that match, accepted or not, as numbers of rows."""
        return matching_rows(self.query, self._rows)

    def _results_of(self, epoch: int) -> pa.Table:
        """The results of an epoch: matches of accepted rows of which one arrived in it."""
        is_accepted, is_new = [], []
        for name in self.query.names:
            numbers = self._matches.column(name).to_numpy()
            accepted = [rows[name] for rows in self._accepted_rows if name in rows]
            is_accepted.append(np.isin(numbers, np.concatenate([np.empty(0, np.int64), *accepted])))
            is_new.append(numbers >= self._rows_before(epoch, name))
        are_results = np.all(is_accepted, axis=0) & np.any(is_new, axis=0)
        matches = self._matches.filter(pa.array(are_results))
        met = [self._may_meet(epoch, a, b, matches) for a, b in combinations(self.query.names, 2)]
        return outputs(self.query, self._rows, matches.filter(pa.array(np.all(met, axis=0))))

    def _may_meet(self, epoch: int, a: str, b: str, matches: pa.Table) -> npt.NDArray[np.bool_]:
        """Which matches have rows of two streams that the windows of all epochs up to this one allow.

        They must be within all windows since the later one arrived. If windows changed between their
        arrivals, the earlier one must then have been in reach of the other stream by those until then.
        """
        times = {n: self._times[n][matches.column(n).to_numpy()] for n in (a, b)}
        arrived = {n: self._arrivals[n][matches.column(n).to_numpy()] for n in (a, b)}
        may_meet = np.ones(matches.num_rows, np.bool_)
        for number, query in enumerate(self.queries[: epoch + 1]):
            bound = query.windows.bound(a, b)
            are_here = np.maximum(arrived[a], arrived[b]) <= number
            if bound is not None:
                may_meet &= ~are_here | (abs(times[a] - times[b]) <= bound)
            before = self.queries[number - 1].windows if number else query.windows
            earlier_bound = before.bound(a, b)
            if before == query.windows or earlier_bound is None:
                continue
            for old, new in ((a, b), (b, a)):
                watermark = self.progress(number - 1)[new].watermark
                between = (arrived[old] < number) & (number <= arrived[new])
                if watermark is not None:
                    may_meet &= ~between | (times[old] >= watermark - earlier_bound)
        return may_meet

    @cached_property
    def _times(self) -> dict[str, npt.NDArray[np.object_]]:
        """The time of every row, as numbers of any size."""
        return {n: np.array(times_of(self.query, n, t), np.object_) for n, t in self._rows.items()}

    @cached_property
    def _arrivals(self) -> dict[str, npt.NDArray[np.int64]]:
        """The epoch in which each row arrived."""
        counts = {n: [e[n].num_rows if n in e else 0 for e in self._epochs] for n in self.query.names}
        return {n: np.repeat(np.arange(len(c)), c) for n, c in counts.items()}


def late_rows_of(published: pa.Table) -> pa.Table:
    """Published late rows, in the form of the expected ones."""
    position = published.column_names.index("time")
    published = published.set_column(position, "time", published.column("time").cast(pa.int64()))
    rows = [{**json.loads(row["row"]), **row} for row in published.to_pylist()]
    return pa.Table.from_pylist(rows, schema=_LATE)


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
