"""The expected results of a run, epoch by epoch, by definitions that share no code with the engine.

Which rows match is found by a batch join by DuckDB. :mod:`midstream.testing.reference` defines which rows are
accepted and which are late. Only the latter, and which rows are near enough in time, depends on the options
and terms of each epoch, so a run needs one batch join of all its rows; what is expected of an epoch is known
when it has begun.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations, pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from midstream.engine.results import TIME
from midstream.query.query import Query
from midstream.query.window import Windows
from midstream.testing.aggregate_oracle import results_with_times
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


@dataclass(frozen=True)
class _Reset:
    """A watermark that was set back after an epoch."""

    epoch: int
    stream: str
    watermarks: Mapping[str, int | None]
    """The watermarks before it."""
    windows: Windows
    latest: int | None
    """The latest time of the stream that holds from then on."""

    def takes(self, name: str, times: npt.NDArray[np.object_]) -> npt.NDArray[np.bool_]:
        """Which rows of a stream are lost: they moved the watermark, are too far behind it, or expired."""
        others = [self._is_behind(name, times, other) for other in self.watermarks if other != name]
        is_dead: npt.NDArray[np.bool_] = np.all(others, axis=0)
        if name == self.stream:
            return is_dead | np.asarray(times >= self.watermarks[name], np.bool_)
        return is_dead | self._is_behind(name, times, self.stream)

    def _is_behind(self, name: str, times: npt.NDArray[np.object_], other: str) -> npt.NDArray[np.bool_]:
        """Which rows of a stream are out of reach of rows of another that are yet to come."""
        width, watermark = self.windows.width(name, other), self.watermarks[other]
        if width is None or watermark is None:
            return np.zeros(len(times), np.bool_)
        return np.asarray(times < watermark - width, np.bool_)


class Expected:
    """What a run must have published and counted, up to its last epoch."""

    def __init__(self, query: Query, batches: Sequence[Mapping[str, pa.Table]]) -> None:
        """Of a query over these batches; epochs without rows may be among them, and follow.

        Its windows must be as wide as those of any epoch.
        """
        self.query = query
        self.queries: list[Query] = []
        """The query on the terms of each epoch."""
        self.accepted = Accepted(progress={name: ExpectedProgress() for name in query.names})
        self.tables: dict[str, list[pa.Table]] = {"results": [], "late": []}
        """What is published in each epoch; results with all columns that the states keep. If they are
        aggregated, the results that are, with their times."""
        self.times: list[npt.NDArray[np.object_]] = []
        """The time of each of the results, which is that of its latest row."""
        self.resets: list[_Reset] = []
        self._batches = batches
        self._epochs: list[Mapping[str, pa.Table]] = []
        """The rows of each epoch that was begun."""
        self._drains: list[bool] = []
        """Whether each epoch that was begun is one without a batch."""
        self._accepted_rows: list[dict[str, npt.NDArray[np.int64]]] = []
        """The numbers of the rows that were accepted in each epoch."""

    def succeeded_by(self, widest: Query, query: Query, live_since: int) -> Expected:
        """What is expected of another definition that has the accepted rows of all epochs before one."""
        new = Expected(widest, self._batches)
        new.queries = [query] * live_since
        before = self.accepted
        new.accepted = Accepted(
            epochs=before.epochs[:live_since],
            late=before.late[:live_since],
            reasons=before.reasons[:live_since],
            history=before.history[:live_since],
        )
        timed = [] if widest.aggregation is None else [pa.field(TIME, pa.int64())]
        nothing = pa.schema([*widest.joined_schema, *timed]).empty_table()
        new.tables = {"results": [nothing] * live_since, "late": self.tables["late"][:live_since]}
        new.times = [np.empty(0, np.object_)] * live_since
        new.resets = list(self.resets)
        new._epochs, new._drains = self._epochs[:live_since], self._drains[:live_since]
        new._accepted_rows = self._accepted_rows[:live_since]
        return new

    def begin(self, epoch: int, rules: AcceptRules, query: Query, *, without_batch: bool = False) -> None:
        """Add an epoch with the query on its terms; if it was begun before, that is forgotten.

        It has the rows of the next batch, unless it is one ``without_batch``.
        """
        accepted = self.accepted
        by_epoch = (accepted.epochs, accepted.late, accepted.reasons, accepted.history, self._accepted_rows)
        of_results = (*self.tables.values(), self.times)
        for entries in (*by_epoch, *of_results, self.queries, self._epochs, self._drains):
            del entries[epoch:]
        self.queries.append(query)
        batch = epoch - sum(self._drains)
        has_rows = not without_batch and batch < len(self._batches)
        self._epochs.append(self._batches[batch] if has_rows else {})
        self._drains.append(without_batch)
        before = accepted.history[-1] if accepted.history else {}
        accepted.progress = {n: replace(before.get(n, ExpectedProgress())) for n in self.query.names}
        accept_epoch(query, accepted, self._numbered(epoch), rules)
        tables = accepted.epochs[-1]
        self._accepted_rows.append({name: table.column(_NUMBER).to_numpy() for name, table in tables.items()})
        accepted.epochs[-1] = {name: table.drop_columns([_NUMBER]) for name, table in tables.items()}
        results, times = self._results_of(epoch)
        self.tables["results"].append(results)
        self.times.append(times)
        self.tables["late"].append(_late_of(self.query, epoch, accepted))

    def set_back(self, epoch: int, stream: str, watermark: int) -> None:
        """After an epoch, the watermark of a stream was set back."""
        marks = self.accepted.history[epoch]
        mark, query = marks[stream], self.queries[epoch]
        latest = mark.latest
        if latest is not None:
            latest = min(latest, watermark + query.by_name[stream].lateness)
        watermarks = {name: mark.watermark for name, mark in marks.items()}
        self.resets.append(_Reset(epoch, stream, watermarks, query.windows, latest))
        marks[stream] = replace(mark, watermark=watermark, latest=latest, idle=False)
        now = max((mark.latest for mark in marks.values() if mark.latest is not None), default=0)
        for mark in marks.values():
            mark.last_active = None if mark.last_active is None else min(mark.last_active, now)

    def latest_before(self, stream: str, time: int) -> int | None:
        """The latest time before ``time`` of a row that was accepted."""
        times = (t[stream] for t in self.accepted.epochs if stream in t)
        accepted = [x for table in times for x in times_of(self.query, stream, table)]
        return max((x for x in accepted if x is not None and x < time), default=None)

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

    def awaited(self, name: str, epoch: int) -> Iterator[tuple[int, int]]:
        """The rows of a stream that a migration waits for, which began after ``epoch``.

        Where a watermark was set back, rows count as as late as it then allows.
        """
        yield from self.arrivals(name, epoch)
        for reset in self.resets:
            if reset.stream == name and reset.latest is not None:
                yield min(epoch, reset.epoch), reset.latest

    def has_expired(self, name: str, arrival: int, time: int, epoch: int) -> bool:
        """Whether no row that arrives from ``epoch`` on can join with a row of a stream.

        None can if none could at some time since it arrived, by the windows at that time. A row that is not
        late may be too early for all other streams when it arrives.
        """
        if self._is_out_of_reach(name, time, arrival, self.queries[arrival].windows):
            return True
        return any(
            self._is_out_of_reach(name, time, later, windows)
            for later in range(arrival + 1, epoch + 1)
            for windows in {query.windows for query in self.queries[later - 1 : later + 1]}
        )

    def was_lost(self, name: str, arrival: int, time: int) -> bool:
        """Whether a row was lost when a watermark was set back."""
        times = np.array([time], np.object_)
        return any(arrival <= reset.epoch and reset.takes(name, times)[0] for reset in self.resets)

    def _is_out_of_reach(self, name: str, time: int, epoch: int, windows: Windows) -> bool:
        for other, progress in self.progress(epoch - 1).items():
            if other == name:
                continue
            width, watermark = windows.width(name, other), progress.watermark
            if width is None or watermark is None or time >= watermark - width:
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
        return {
            name: table.append_column(
                _NUMBER, pa.array(self._rows_before(epoch, name) + np.arange(table.num_rows))
            )
            for name, table in self._epochs[epoch].items()
        }

    def rows_given(self, name: str, epoch: int) -> int:
        """How many rows a stream has had up to an epoch."""
        return self._rows_before(epoch + 1, name)

    def _rows_before(self, epoch: int, name: str) -> int:
        return sum(rows[name].num_rows for rows in self._epochs[:epoch] if name in rows)

    @cached_property
    def _rows(self) -> dict[str, pa.Table]:
        """All rows of every stream, accepted or not."""
        return {
            s.name: pa.concat_tables(
                [s.schema.empty_table(), *(rows[s.name] for rows in self._batches if s.name in rows)]
            )
            for s in self.query.streams
        }

    @cached_property
    def _matches(self) -> pa.Table:
        """The combinations of rows that match, accepted or not, as numbers of rows."""
        return matching_rows(self.query, self._rows)

    def _results_of(self, epoch: int) -> tuple[pa.Table, npt.NDArray[np.object_]]:
        """The results of an epoch, with their times: matches of accepted rows of which one arrived in it."""
        is_accepted, is_new = [], []
        for name in self.query.names:
            numbers = self._matches.column(name).to_numpy()
            accepted = [rows[name] for rows in self._accepted_rows if name in rows]
            is_accepted.append(np.isin(numbers, np.concatenate([np.empty(0, np.int64), *accepted])))
            is_new.append(numbers >= self._rows_before(epoch, name))
        are_results = np.all(is_accepted, axis=0) & np.any(is_new, axis=0)
        matches = self._matches.filter(pa.array(are_results))
        met = [self._may_meet(epoch, a, b, matches) for a, b in combinations(self.query.names, 2)]
        met += [~self._is_lost(epoch, name, matches) for name in self.query.names]
        matches = matches.filter(pa.array(np.all(met, axis=0)))
        times = [self._times[name][matches.column(name).to_numpy()] for name in self.query.names]
        latest: npt.NDArray[np.object_] = np.max(times, axis=0)
        if self.query.aggregation is not None:
            return results_with_times(self.query, self._rows, matches), latest
        return outputs(self.query, self._rows, matches), latest

    def _may_meet(self, epoch: int, a: str, b: str, matches: pa.Table) -> npt.NDArray[np.bool_]:
        """Which matches have rows of two streams that the windows of all epochs up to this one allow.

        They must be within all windows since the later one arrived. If windows changed between their
        arrivals, the earlier one must then have been in reach of the other stream by those until then.
        """
        times = {n: self._times[n][matches.column(n).to_numpy()] for n in (a, b)}
        arrived = {n: self._arrivals(n)[matches.column(n).to_numpy()] for n in (a, b)}
        both_arrived, distance = np.maximum(arrived[a], arrived[b]), abs(times[a] - times[b])
        windows = [query.windows for query in self.queries[: epoch + 1]]
        may_meet = np.ones(matches.num_rows, np.bool_)
        last_epochs = {each.width(a, b): number for number, each in enumerate(windows)}
        for width, last_epoch in last_epochs.items():
            if width is not None:
                may_meet &= (both_arrived > last_epoch) | (distance <= width)
        for number, (before, after) in enumerate(pairwise(windows), 1):
            earlier_width = before.width(a, b)
            if before == after or earlier_width is None:
                continue
            for old, new in ((a, b), (b, a)):
                watermark = self.progress(number - 1)[new].watermark
                between = (arrived[old] < number) & (number <= arrived[new])
                if watermark is not None:
                    may_meet &= ~between | (times[old] >= watermark - earlier_width)
        return may_meet

    def _is_lost(self, epoch: int, name: str, matches: pa.Table) -> npt.NDArray[np.bool_]:
        """Which matches have a row of a stream that was lost before an epoch."""
        numbers = matches.column(name).to_numpy()
        is_lost = np.zeros(matches.num_rows, np.bool_)
        for reset in self.resets:
            if reset.epoch < epoch:
                was_there = self._arrivals(name)[numbers] <= reset.epoch
                is_lost |= was_there & reset.takes(name, self._times[name][numbers])
        return is_lost

    @cached_property
    def _times(self) -> dict[str, npt.NDArray[np.object_]]:
        """The time of every row, as numbers of any size."""
        return {n: np.array(times_of(self.query, n, t), np.object_) for n, t in self._rows.items()}

    def _arrivals(self, name: str) -> npt.NDArray[np.int64]:
        """The epoch in which each row of a stream arrived, of those that have."""
        counts = [rows[name].num_rows if name in rows else 0 for rows in self._epochs]
        return np.repeat(np.arange(len(counts)), counts)


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
