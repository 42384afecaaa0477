"""Running a fragment with what aggregates add to it, in one engine partition and one epoch.

Fragments of the join run as ever. Results that are to be aggregated do not leave: they are aggregated where
they are, pane by pane, and these partial aggregates are sent to where their groups are merged. That is a
fragment of its own, in a stage after all joins. It merges what arrives with what it has, as slices, and emits
the windows that are complete, or in update mode those that have changed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace as replace_field

import numpy as np
import polars as pl
import pyarrow as pa
from msgspec.structs import replace

from midstream.aggregate.emit import emitted_windows
from midstream.aggregate.next_step import is_due, is_near, is_out
from midstream.aggregate.partials import HASH, PANE, merge_partials, partial_aggregates
from midstream.aggregate.update import updated_windows
from midstream.aggregate.user_states import in_batch
from midstream.engine.aggregate_step import AggregateStep
from midstream.engine.arrays import as_array
from midstream.engine.merge_slices import OpenSlice
from midstream.engine.program import NewSlice, Program, StepOutput
from midstream.engine.results import TIME
from midstream.engine.routed_rows import Arrivals, RoutedRows
from midstream.engine.routing import split
from midstream.engine.step import run_step
from midstream.errors import InternalError
from midstream.plan.layout import Fragment
from midstream.query.aggregation import Aggregation
from midstream.state.compaction import choose_merge, epochs_of
from midstream.state.slices import Slice, SliceOwner
from midstream.values import show_time


def run_fragment(
    program: Program, fragment: Fragment, partition: int, arrivals: Arrivals, open_slice: OpenSlice
) -> StepOutput:
    """The output of a fragment of the join, or of the one that merges aggregates."""
    aggregation, step = program.query.aggregation, program.aggregation
    if aggregation is None or step is None:
        return run_step(program, fragment, partition, arrivals, open_slice)
    if fragment == step.fragment:
        with in_batch(program.epoch):
            return _AggregationStep(program, aggregation, step, partition, open_slice).run(arrivals)
    output = run_step(program, fragment, partition, arrivals, open_slice)
    if output.results is None or not output.results.num_rows:
        return replace_field(output, results=None)
    _check_in_time(output.results, step)
    with in_batch(program.epoch):
        partials = _to_arrow(partial_aggregates(aggregation, output.results))
    hashes = as_array(partials.column(HASH))
    (target,) = step.fragment.inputs
    routed = (
        RoutedRows(to, target.id, "partials", part)
        for to, part in split(partials, program.places.routing((), step.fragment.site).targets(hashes))
    )
    return replace_field(output, results=None, outgoing=(*output.outgoing, *routed))


class _AggregationStep:
    """The groups of one engine partition."""

    def __init__(
        self,
        program: Program,
        aggregation: Aggregation,
        step: AggregateStep,
        partition: int,
        open_slice: OpenSlice,
    ) -> None:
        self.program = program
        self.aggregation = aggregation
        self.step = step
        self.open_slice = open_slice
        (target,) = step.fragment.inputs
        self.input = target.id
        self.owner = SliceOwner("partial", target.id, (), partition)
        self.routing = program.places.routing((), step.fragment.site)
        self.stored = program.readable("partial", target.id, (), partition)

    def run(self, arrivals: Arrivals) -> StepOutput:
        """Emit what is complete, or has changed, and keep what has arrived."""
        tables = arrivals.get((self.input, "partials"), ())
        arrived = self._merged(tables) if tables else None
        emitted = list(self._changed(arrived) if self.aggregation.is_update_mode else self._complete())
        slices, replaced = ((), ()) if arrived is None else self._keep(arrived)
        return StepOutput(
            results=pa.concat_tables(emitted) if emitted else None,
            outgoing=(),
            slices=slices,
            replaced=replaced,
            late={},
            counts={},
            work={},
            keys={},
            produced={},
        )

    def _merged(self, tables: Sequence[pa.Table]) -> pl.DataFrame:
        return merge_partials(self.aggregation, [_from_arrow(table) for table in tables])

    def _complete(self) -> Iterator[pa.Table]:
        """The windows that are complete. What arrives now belongs to later ones."""
        windows, (emitted, until) = self.aggregation.windows, (self.step.emitted, self.step.until)
        result_range = self.program.result_range
        if result_range is not None and until is not None:
            emitted, until = (
                result_range.after_window_end(windows, emitted),
                result_range.until_window_end(windows, until),
            )
        if until is None or (result_range is not None and result_range.is_empty):
            return
        due = [self._own_groups(s) for s in self.stored if is_due(windows, s, emitted, until)]
        yield from emitted_windows(self.aggregation, due, emitted, until)

    def _changed(self, arrived: pl.DataFrame | None) -> Iterator[pa.Table]:
        """The windows and groups that results have arrived for; those groups are in this partition now."""
        if arrived is None:
            return
        windows = self.aggregation.windows
        near = (s for s in self.stored if is_near(windows, s, int(arrived[PANE][0]), int(arrived[PANE][-1])))
        stored = [self.open_slice(slice_) for slice_ in near]
        result_range = self.program.result_range
        for table in updated_windows(self.aggregation, arrived, stored):
            yield table if result_range is None else result_range.filter_windows(self.aggregation, table)

    def _keep(self, arrived: pl.DataFrame) -> tuple[tuple[NewSlice, ...], tuple[Slice, ...]]:
        """What has arrived as a partial slice, merged with others where compaction says so, and those."""
        places = self.program.places
        new = self._slice(arrived, self.owner.partition, self.program.epoch, 1)
        kept = [s for s in self.stored if places.keeper(s) == self.owner.partition]
        in_use = [s for s in kept if not is_out(self.aggregation.windows, s, self.step.until)]
        chosen = choose_merge((*in_use, new.slice))
        if not chosen:
            return (new,), ()
        earlier = [slice_ for slice_ in chosen if slice_ is not new.slice]
        needed = [*(self._needed(self._open(slice_)) for slice_ in earlier), arrived]
        merged = merge_partials(self.aggregation, needed)
        first = min(slice_.first_epoch for slice_ in chosen)
        # Rows that were placed by an earlier routing go where their groups are now.
        targets = self.routing.targets(merged[HASH].to_numpy())
        parts = [
            self._slice(merged.filter(pl.Series(targets == to)), to, first, epochs_of(chosen))
            for to in np.unique(targets).tolist()
        ]
        return tuple(parts), tuple(earlier)

    def _own_groups(self, slice_: Slice) -> pl.DataFrame:
        """The rows of a slice whose groups are in this partition now."""
        rows = self._open(slice_)
        if self.program.places.readers(slice_) == (self.owner.partition,):
            return rows
        targets = self.routing.targets(rows[HASH].to_numpy())
        return rows.filter(pl.Series(targets == self.owner.partition))

    def _needed(self, rows: pl.DataFrame) -> pl.DataFrame:
        """The rows of panes that are in some window which has not left."""
        if self.step.until is None:
            return rows
        oldest = self.aggregation.windows.oldest_pane(self.step.until)
        return rows.slice(int(np.searchsorted(rows[PANE].to_numpy(), oldest)))

    def _slice(self, rows: pl.DataFrame, partition: int, first_epoch: int, epochs: int) -> NewSlice:
        description = Slice(
            owner=replace(self.owner, partition=partition),
            placed=self.program.places.since,
            first_epoch=first_epoch,
            last_epoch=self.program.epoch,
            epochs=epochs,
            rows=len(rows),
            latest=(int(rows[PANE][-1]),) * len(self.owner.state.streams),
            earliest=int(rows[PANE][0]),
        )
        return NewSlice(description, _to_arrow(rows))

    def _open(self, slice_: Slice) -> pl.DataFrame:
        return _from_arrow(self.open_slice(slice_))


def _check_in_time(results: pa.Table, step: AggregateStep) -> None:
    """Refuse to go on if the windows of a result may have left."""
    earliest = int(as_array(results.column(TIME)).min())
    if step.until is not None and earliest < step.until:
        must = f"no result may be before the output watermark, {show_time(step.until)}"
        raise InternalError(must, got=show_time(earliest))


def _to_arrow(partials: pl.DataFrame) -> pa.Table:
    return partials.to_arrow()


def _from_arrow(table: pa.Table) -> pl.DataFrame:
    return pl.DataFrame(pl.from_arrow(table))
