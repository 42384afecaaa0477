"""One node, one epoch: the delta rule.

For a node with inputs 1..m, new rows d_i and states S_i as they were before the epoch, the node's new rows
are, for every i, d_i joined with S_j + d_j for j < i and with S_j for j > i. So every combination is
found exactly once: by its newest input, or by the last of them if several are new.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

from midstream.engine.arrays import as_array
from midstream.engine.epoch_filter import EpochRange, filter_by_epoch
from midstream.engine.error_context import error_context
from midstream.engine.evaluate import filter_residual
from midstream.engine.hashing import Hashes, hash_key
from midstream.engine.hot_keys import Positions
from midstream.engine.index_rows import IndexRows, in_time_order, merge_rows, sort_rows
from midstream.engine.payload import Payload
from midstream.engine.probe import matches
from midstream.engine.references import Integers, epoch_of
from midstream.engine.work import WorkCounts
from midstream.plan.handover import EpochBounds, Restriction, Side
from midstream.plan.layout import Key, Node, Probe, column_name, epoch_column, key_column, representative
from midstream.plan.state_id import StateId
from midstream.query.query import Query
from midstream.state.purge import Purge

State = Callable[[StateId, Key], Sequence[IndexRows]]
"""The sorted runs of a state by the key they are searched by."""


@dataclass
class Joiner:
    """Joins rows of a fragment's inputs in one engine partition."""

    query: Query
    payloads: Mapping[StateId, Payload]
    purge: Purge
    side: Side = "both"
    """The plan of a migration that work is recorded for."""
    work: dict[Side, WorkCounts] = field(default_factory=dict)

    def delta(
        self,
        node: Node,
        deltas: Mapping[StateId, IndexRows],
        state: State,
        restriction: Restriction | None = None,
    ) -> IndexRows | None:
        """The new rows of a node, within a restriction if there is one; None if it has none."""
        bounds = restriction.bounds if restriction else None
        early = bounds if restriction and restriction.early else None
        produced: list[IndexRows] = []
        for i, head in enumerate(node.inputs):
            earlier = frozenset(node.inputs[:i])
            rows = filter_by_epoch(deltas.get(head), early, self.epochs)
            for probe in node.probes[i]:
                if rows is None:
                    break
                runs = self._stored_runs(state, probe.input, probe.key, early)
                if probe.input in earlier:
                    fresh = filter_by_epoch(deltas.get(probe.input), early, self.epochs)
                    runs += [] if fresh is None else [self.searchable(fresh, probe.key)]
                rows = filter_by_epoch(self._extend(rows, probe, runs), early, self.epochs)
            if rows is not None:
                produced.append(rows)
        if not produced:
            return None
        merged = merge_rows([self.arrange(rows, produced[0].key) for rows in produced])
        return filter_by_epoch(merged, bounds, self.epochs)

    def rebuild(
        self, node: Node, state: State, bounds: tuple[EpochBounds, ...], only: EpochRange | None
    ) -> IndexRows | None:
        """Rows of a node within the bounds, and of some epochs, from the states of its inputs."""
        head, order = node.inputs[0], node.probes[0]
        stored_by = next(p.key for probes in node.probes for p in probes if p.input == head)
        runs = self._stored_runs(state, head, stored_by, bounds, only)
        rows = merge_rows(runs) if runs else None
        for probe in order:
            if rows is None:
                break
            runs = self._stored_runs(state, probe.input, probe.key, bounds, only)
            rows = filter_by_epoch(self._extend(rows, probe, runs), bounds, self.epochs)
        return rows

    def epochs(self, rows: IndexRows, stream: str) -> Integers:
        """When the rows' components of a stream arrived."""
        owner = self._owner(rows, stream)
        if owner.is_base:
            return epoch_of(rows.references[owner])
        epochs: Integers = as_array(self.fetch(rows, stream, epoch_column(stream)))
        return epochs

    def _stored_runs(
        self,
        state: State,
        name: StateId,
        key: Key,
        bounds: tuple[EpochBounds, ...] | None,
        only: EpochRange | None = None,
    ) -> list[IndexRows]:
        """The runs of a state, within the bounds if there are any."""
        runs = list(state(name, key))
        if bounds is None:
            return runs
        # What has expired may have lost its payload, and with it the epochs of its components.
        alive = (run.take(self.purge.alive(run.times)) for run in runs)
        limited = (filter_by_epoch(run, bounds, self.epochs, only) for run in alive)
        return [run for run in limited if run is not None]

    def record(self, work: WorkCounts) -> None:
        """Add work to that of the plan it is done for."""
        self.work[self.side] = self.work.get(self.side, WorkCounts()) + work

    def arrange(self, rows: IndexRows, key: Key) -> IndexRows:
        """The rows, sorted by another key."""
        if rows.key == key:
            return rows
        with error_context(columns=(self.query.classes[c] for c in key)):
            columns = [self.key_values(rows, c) for c in key]
            hashes = hash_key(columns, len(rows))
        return sort_rows(key, hashes, rows.references, rows.times)

    def searchable(self, rows: IndexRows, key: Key) -> IndexRows:
        """The rows as others search them by a key: kept, or probed while they are new."""
        return in_time_order(self.arrange(rows, key))

    def key_values(self, rows: IndexRows, key_class: int) -> pa.ChunkedArray:
        """The rows' values of a key class."""
        stream = representative(self.query, rows.times, key_class)
        return self.fetch(rows, stream, key_column(stream, key_class))

    def fetch(self, rows: IndexRows, stream: str, column: str) -> pa.ChunkedArray:
        """A payload column of one of the rows' streams."""
        return self.fetch_all(rows, [(stream, column)])[0]

    def fetch_all(self, rows: IndexRows, wanted: Sequence[tuple[str, str]]) -> list[pa.ChunkedArray]:
        """Payload columns, each of one of the rows' streams."""
        owners = [self._owner(rows, stream) for stream, _ in wanted]
        fetched: dict[StateId, pa.Table] = {}
        for owner in dict.fromkeys(owners):
            columns = [column for (_, column), other in zip(wanted, owners, strict=True) if other == owner]
            fetched[owner] = self.payloads[owner].fetch(list(dict.fromkeys(columns)), rows.references[owner])
        return [fetched[owner].column(column) for owner, (_, column) in zip(owners, wanted, strict=True)]

    def _owner(self, rows: IndexRows, stream: str) -> StateId:
        return next(name for name in rows.references if stream in name.streams)

    def _extend(self, rows: IndexRows, probe: Probe, runs: Iterable[IndexRows]) -> IndexRows | None:
        rows = self.arrange(rows, probe.key)
        extended: list[IndexRows] = []
        for run in runs:
            candidates = 0
            for left, right in matches(rows, run, self.query.windows):
                candidates += len(left)
                joined = self._check(rows, run, left, right, probe)
                if len(joined):
                    extended.append(joined)
            comparisons = len(rows) * len(run)
            self.record(WorkCounts(probes=len(rows), candidates=candidates, comparisons=comparisons))
        if not extended:
            return None
        self.record(WorkCounts(intermediate_rows=sum(map(len, extended))))
        return merge_rows(extended)

    def _check(
        self, rows: IndexRows, run: IndexRows, left: Positions, right: Positions, probe: Probe
    ) -> IndexRows:
        """Keep the candidates that are within the windows, equal by value, and pass the residuals.

        The windows come first: they are cheapest, and a row of the state that has expired never passes
        them, so the payload of such a row is never asked for.
        """
        for mine, my_times in rows.times.items():
            for other, other_times in run.times.items():
                bound = self.query.windows.bound(mine, other)
                if bound is not None:
                    near = _distance(my_times[left], other_times[right]) <= np.uint64(bound)
                    left, right = left[near], right[near]
        for key_class in probe.verify:
            if len(left):
                same = self._same(rows.take(left), run.take(right), key_class)
                left, right = left[same], right[same]
        joined = self._combine(rows.take(left), run.take(right))
        for index in probe.residuals:
            if len(joined):
                joined = self._filter(joined, index)
        return joined

    def _combine(self, rows: IndexRows, others: IndexRows) -> IndexRows:
        """Rows side by side."""
        times = {**rows.times, **others.times}
        leading = {name: times[name] for name in self.query.windows.narrowest_first(times)}
        return IndexRows(rows.key, rows.hashes, {**rows.references, **others.references}, leading)

    def _same(self, rows: IndexRows, others: IndexRows, key_class: int) -> npt.NDArray[np.bool_]:
        """Whether the values of a class are equal, by Polars, which compares NaN and -0.0 as Spark does."""
        with error_context(columns=[self.query.classes[key_class]]):
            mine = pl.from_arrow(self.key_values(rows, key_class))
            theirs = pl.from_arrow(self.key_values(others, key_class))
            same: npt.NDArray[np.bool_] = pl.Series(mine == theirs).to_numpy()
        return same

    def _filter(self, rows: IndexRows, index: int) -> IndexRows:
        residual = self.query.residuals[index]
        with error_context(condition=residual.text, columns=residual.columns):
            columns = {column_name(r): self.fetch(rows, r.stream, column_name(r)) for r in residual.columns}
            passed = filter_residual(residual, columns).to_numpy()
        return rows.take(passed)


def _distance(a: Integers, b: Integers) -> Hashes:
    """How far times are apart; unsigned, because times at both ends of 64 bits are further than 63 hold."""
    return np.maximum(a, b).view(np.uint64) - np.minimum(a, b).view(np.uint64)
