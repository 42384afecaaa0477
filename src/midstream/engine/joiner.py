"""Joining: the new rows of a node in one epoch, by the delta rule.

For a node with inputs 1..m, new rows d_i and states S_i as they were before the epoch, the node's new rows
are, for every i, d_i joined with S_j + d_j for j < i and with S_j for j > i. So every combination is
found exactly once: by its new input, or by the last of them if several are new.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

from midstream.engine.arrays import as_array
from midstream.engine.changed_windows import distance, may_be_combined
from midstream.engine.epoch_filter import EpochRange, filter_by_epoch, may_have_rows
from midstream.engine.error_context import error_context
from midstream.engine.evaluate import filter_residual
from midstream.engine.hashing import Hashes, hash_key
from midstream.engine.hot_keys import Positions, expand_ranges
from midstream.engine.index_rows import IndexRows, in_time_order, merge_rows, sort_rows
from midstream.engine.payload import Payload
from midstream.engine.probe import candidate_pairs
from midstream.engine.probed_epochs import Mask, ProbedEpochs
from midstream.engine.references import Integers, arrived_between, epoch_of
from midstream.engine.work import WorkCounts
from midstream.plan.handover import EpochBounds, PlanSide, Restriction
from midstream.plan.layout import Key, Node, Probe, column_name, epoch_column, key_column, representative
from midstream.plan.state_id import StateId
from midstream.query.query import Query
from midstream.state.expiry import Expiry
from midstream.state.slices import Slice

SliceFilter = Callable[[Slice], bool]
OpenRuns = Callable[[StateId, Key, SliceFilter], Sequence[IndexRows]]
"""A function that returns the sorted runs of a state, arranged by a key, of the slices that pass a filter."""
PairFilter = Callable[[IndexRows, Positions, Positions], Mask]
"""Which pairs are joined, of probing rows and found rows at some positions."""


HiddenIn = Callable[[Slice], Hashes]
_NO_HASHES: Hashes = np.empty(0, np.uint64)


def no_hot_keys(_slice: Slice) -> Hashes:
    """In no slice are rows of hot keys that other partitions have."""
    return _NO_HASHES


@dataclass
class Joiner:
    """Joins rows of a fragment's inputs in one engine partition."""

    query: Query
    payloads: Mapping[StateId, Payload]
    expiry: Expiry
    epoch: int
    partition: int
    hidden: HiddenIn = no_hot_keys
    """The hot keys whose rows in a slice are those of other partitions."""
    side: PlanSide = "both"
    """The plan of a migration for which work is counted."""
    live_only: bool = False
    """Whether stored rows that have expired must not be found, as some that arrive are as old."""
    probed: Mapping[StateId, ProbedEpochs] = field(default_factory=dict)
    """For states with spilled groups: the rows that are probed."""
    work: dict[PlanSide, WorkCounts] = field(default_factory=dict)

    def delta(
        self,
        node: Node,
        deltas: Mapping[StateId, IndexRows],
        open_runs: OpenRuns,
        restriction: Restriction | None = None,
    ) -> IndexRows | None:
        """The new rows of a node, within a restriction if there is one; None if it has none."""
        bounds = restriction.bounds if restriction else None
        prune_bounds = bounds if restriction and restriction.prunes else None
        is_needed = partial(may_have_rows, bounds=prune_bounds)
        produced: list[IndexRows] = []
        for i, head in enumerate(node.inputs):
            if not node.probes[i]:
                continue
            earlier = frozenset(node.inputs[:i])
            rows = filter_by_epoch(deltas.get(head), prune_bounds, self.epochs)
            for probe in node.probes[i]:
                if rows is None:
                    break
                runs = list(open_runs(probe.input, probe.key, self.searched(probe.input, is_needed)))
                if probe.input in earlier:
                    new_rows = filter_by_epoch(deltas.get(probe.input), prune_bounds, self.epochs)
                    runs += [] if new_rows is None else [self.searchable(new_rows, probe.key)]
                rows = filter_by_epoch(self.extend(rows, probe, runs), prune_bounds, self.epochs)
            if rows is not None:
                produced.append(rows)
        if not produced:
            return None
        merged = merge_rows([self.arrange(rows, produced[0].key) for rows in produced])
        return filter_by_epoch(merged, bounds, self.epochs)

    def rebuild(
        self,
        node: Node,
        scan: OpenRuns,
        open_runs: OpenRuns,
        bounds: tuple[EpochBounds, ...],
        only: EpochRange | None,
        base: tuple[StateId, Key] | None,
    ) -> IndexRows | None:
        """Rows of a node within the bounds, only those of a range if given, from the states of its inputs.

        ``scan`` opens runs with nothing but rows of this partition, ``open_runs`` those to be searched.
        ``base`` is the base state of the range's stream, and a key that it is arranged by, if it is here.
        """
        # The state that a rebuild starts from is scanned, the others are probed: so it starts from the range.
        first = next((i for i, name in enumerate(node.inputs) if only and only.stream in name.streams), 0)
        head = node.inputs[first]
        head_key = next(p.key for probes in node.probes for p in probes if p.input == head)
        is_needed = partial(may_have_rows, bounds=bounds, only=only)
        runs = [self._probed(head, run) for run in scan(head, head_key, is_needed)]
        if (
            only is not None
            and base is not None
            and not head.is_base
            and self._has_key(only.stream, head_key)
        ):
            # Combined rows of the range have the keys of their components. A base state has few rows to scan:
            # its slices say which epochs they are of.
            hashes = self._hashes_in(scan(*base, is_needed), only, head_key)
            runs = [self._rows_with(run, hashes) for run in runs]
        scanned = (self._scan(run, bounds, only) for run in runs)
        parts = [part for part in scanned if part is not None]
        rows = merge_rows(parts) if parts else None
        for probe in node.probes[first]:
            if rows is None:
                break
            searched = self.searched(probe.input, partial(may_have_rows, bounds=bounds))
            probed = open_runs(probe.input, probe.key, searched)
            rows = filter_by_epoch(self.extend(rows, probe, probed, live_only=True), bounds, self.epochs)
        return rows

    def searched(self, state: StateId, is_needed: SliceFilter) -> SliceFilter:
        """Which slices of a state are searched: of those that are needed, the ones with probed rows."""
        probed = self.probed.get(state)
        if probed is None:
            return is_needed
        return lambda slice_: is_needed(slice_) and probed.may_have_rows(slice_)

    def _probed(self, state: StateId, run: IndexRows) -> IndexRows:
        """The rows of a run that are probed."""
        probed = self.probed.get(state)
        return run if probed is None else run.take(probed.is_probed(run))

    def _has_key(self, stream: str, key: Key) -> bool:
        return all(stream in self.query.classes[key_class].streams for key_class in key)

    def _hashes_in(self, runs: Iterable[IndexRows], only: EpochRange, key: Key) -> Hashes:
        """The hashes of a key that rows of a range have, in ascending order."""
        hashes = [np.empty(0, np.uint64)]
        for run in runs:
            rows = run.take(self._in_range(run, only))
            # If a combined row is live, so are its components. The keys of others may be gone.
            live = rows.take(self.expiry.is_live(rows.times, self._last_epoch(run)))
            hashes.append(self.arrange(live, key).hashes)
        return np.unique(np.concatenate(hashes))

    def _rows_with(self, run: IndexRows, hashes: Hashes) -> IndexRows:
        """The rows of a run that have some hashes."""
        low = np.searchsorted(run.hashes, hashes, side="left")
        counts = np.searchsorted(run.hashes, hashes, side="right") - low
        self.record(WorkCounts(probes=len(hashes)))
        return run.take(expand_ranges(low, counts))

    def _scan(
        self, run: IndexRows, bounds: tuple[EpochBounds, ...], only: EpochRange | None
    ) -> IndexRows | None:
        """The rows of a run that are live and within the bounds, only those of a range if given."""
        rows = run
        if only is not None and self._owner(rows, only.stream).is_base:
            # First, since it leaves few rows, and references alone tell which.
            rows = rows.take(self._in_range(rows, only))
        else:
            self.record(WorkCounts(scanned_rows=len(rows)))
        # The payload of expired rows may be gone, and with it the epochs of their components.
        live = rows.take(self.expiry.is_live(rows.times, self._last_epoch(run)))
        return filter_by_epoch(live, bounds, self.epochs, only)

    def _in_range(self, rows: IndexRows, only: EpochRange) -> Positions:
        """The positions of rows of a range, whose references tell when they arrived."""
        self.record(WorkCounts(scanned_rows=len(rows)))
        references = rows.references[self._owner(rows, only.stream)]
        return np.flatnonzero(arrived_between(references, only.first, only.end))

    def epochs(self, rows: IndexRows, stream: str) -> Integers:
        """The epochs in which the rows' components of a stream arrived."""
        owner = self._owner(rows, stream)
        if owner.is_base:
            return epoch_of(rows.references[owner])
        epochs: Integers = as_array(self.fetch(rows, stream, epoch_column(stream)))
        return epochs

    def record(self, work: WorkCounts) -> None:
        """Add to the work of the current plan."""
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
        """The rows, arranged so that they can be searched by a key."""
        return in_time_order(self.arrange(rows, key))

    def key_values(self, rows: IndexRows, key_class: int) -> pa.ChunkedArray:
        """The rows' values of a key class."""
        stream = representative(self.query, rows.times, key_class)
        return self.fetch(rows, stream, key_column(stream, key_class))

    def fetch(self, rows: IndexRows, stream: str, column: str) -> pa.ChunkedArray:
        """A payload column of one of the rows' streams."""
        return self.fetch_all(rows, [(stream, column)])[0]

    def fetch_all(self, rows: IndexRows, columns: Sequence[tuple[str, str]]) -> list[pa.ChunkedArray]:
        """Payload columns, each with the stream that it belongs to."""
        owners = [self._owner(rows, stream) for stream, _ in columns]
        fetched: dict[StateId, pa.Table] = {}
        for owner in dict.fromkeys(owners):
            names = [name for (_, name), other in zip(columns, owners, strict=True) if other == owner]
            fetched[owner] = self.payloads[owner].fetch(list(dict.fromkeys(names)), rows.references[owner])
        return [fetched[owner].column(name) for owner, (_, name) in zip(owners, columns, strict=True)]

    def _last_epoch(self, run: IndexRows) -> int:
        """The epoch until which all rows of a run had arrived."""
        return self.epoch if run.stored_in is None else run.stored_in.last_epoch

    def _owner(self, rows: IndexRows, stream: str) -> StateId:
        """The input of the fragment whose payload has the columns of a stream."""
        return next(name for name in rows.references if stream in name.streams)

    def extend(
        self,
        rows: IndexRows,
        probe: Probe,
        runs: Iterable[IndexRows],
        *,
        live_only: bool = False,
        is_joined: PairFilter | None = None,
    ) -> IndexRows | None:
        """The rows combined with matching rows of the runs, those pairs that ``is_joined`` lets pass.

        New rows match only rows that are live; for others ``live_only`` makes sure of it.
        """
        rows = self.arrange(rows, probe.key)
        probed = self.probed.get(probe.input)
        extended: list[IndexRows] = []
        for run in runs:
            candidates = 0
            needles = rows if probed is None else probed.needles(rows, run)
            if run.stored_in is not None:
                needles = self._needles_here(needles, run, run.stored_in)
            for pairs in candidate_pairs(needles, run, self.query.windows):
                candidates += len(pairs[0])
                left, right = pairs if is_joined is None else _those(pairs, is_joined(needles, *pairs))
                # Of what has come in this epoch, all payload is here.
                checks = live_only or (self.live_only and run.stored_in is not None)
                joined = self._check(needles, run, left, right, probe, live_only=checks)
                if joined is not None:
                    extended.append(joined)
            comparisons = len(needles) * len(run)
            self.record(WorkCounts(probes=len(needles), candidates=candidates, comparisons=comparisons))
        if not extended:
            return None
        self.record(WorkCounts(intermediate_rows=sum(map(len, extended))))
        return merge_rows(extended)

    def _needles_here(self, needles: IndexRows, run: IndexRows, stored_in: Slice) -> IndexRows:
        """The probing rows whose matches in a slice are rows of this partition."""
        hidden = self.hidden(stored_in)
        if len(hidden):
            needles = needles.take(~np.isin(needles.hashes, hidden))
        if stored_in.owner.partition != self.partition:
            # Of another partition that has had some of the groups of this one, and none of the others.
            needles = needles.near(run)
        return needles

    def _check(
        self,
        rows: IndexRows,
        run: IndexRows,
        left: Positions,
        right: Positions,
        probe: Probe,
        *,
        live_only: bool,
    ) -> IndexRows | None:
        """Join the candidates that are within the windows, have equal keys, and pass the residuals.

        The windows come first: they are cheapest, and expired rows of the state never pass them, so the
        payload of such rows, which may be gone, is never fetched. Rows that had expired when the windows
        changed may pass wider ones.
        """
        for left_stream, left_times in rows.times.items():
            for right_stream, right_times in run.times.items():
                width = self.query.windows.width(left_stream, right_stream)
                if width is not None:
                    within = distance(left_times[left], right_times[right]) <= np.uint64(width)
                    left, right = left[within], right[within]
        probed = self.probed.get(probe.input)
        if probed is not None:
            is_probed = probed.is_probed(run, right)
            left, right = left[is_probed], right[is_probed]
        if live_only or self.expiry.has_changed_after(self._last_epoch(run)):
            found = {name: times[right] for name, times in run.times.items()}
            live = self.expiry.is_live(found, self._last_epoch(run))
            left, right = left[live], right[live]
        if not len(left):
            return None
        rows, others = rows.take(left), run.take(right)
        if self.expiry.changes:
            rows, others = _where(self._may_be_combined(self._combine(rows, others)), rows, others)
        for key_class in probe.verify:
            if len(rows):
                rows, others = _where(self._equal(rows, others, key_class), rows, others)
        joined = self._combine(rows, others)
        for index in probe.residuals:
            if len(joined):
                joined = self._filter(joined, index)
        return joined if len(joined) else None

    def _may_be_combined(self, rows: IndexRows) -> npt.NDArray[np.bool_]:
        """Which rows are within the windows although these have changed since some components arrived."""
        epochs = {stream: self.epochs(rows, stream) for stream in rows.times}
        return may_be_combined(self.expiry, rows.times, epochs)

    def _combine(self, rows: IndexRows, others: IndexRows) -> IndexRows:
        """Each row combined with the other row at its position."""
        times = {**rows.times, **others.times}
        ordered = {name: times[name] for name in self.query.windows.narrowest_first(times)}
        return IndexRows(rows.key, rows.hashes, {**rows.references, **others.references}, ordered)

    def _equal(self, rows: IndexRows, others: IndexRows, key_class: int) -> npt.NDArray[np.bool_]:
        """Whether values of a class are equal, by Polars, which compares NaN and -0.0 as Spark does."""
        with error_context(columns=[self.query.classes[key_class]]):
            left = pl.from_arrow(self.key_values(rows, key_class))
            right = pl.from_arrow(self.key_values(others, key_class))
            equal: npt.NDArray[np.bool_] = pl.Series(left == right).to_numpy()
        return equal

    def _filter(self, rows: IndexRows, index: int) -> IndexRows:
        residual = self.query.residuals[index]
        with error_context(condition=residual.text, columns=residual.columns):
            names = [column_name(ref) for ref in residual.columns]
            streams = [ref.stream for ref in residual.columns]
            fetched = self.fetch_all(rows, list(zip(streams, names, strict=True)))
            passed = filter_residual(residual, dict(zip(names, fetched, strict=True))).to_numpy()
        return rows.take(passed)


def _where(chosen: Mask, rows: IndexRows, others: IndexRows) -> tuple[IndexRows, IndexRows]:
    """Rows and their partners; most often all are chosen."""
    return (rows, others) if chosen.all() else (rows.take(chosen), others.take(chosen))


def _those(pairs: tuple[Positions, Positions], chosen: Mask) -> tuple[Positions, Positions]:
    left, right = pairs
    return left[chosen], right[chosen]
