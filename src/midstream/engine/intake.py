"""Intake of rows: late ones are set aside, all others get references and are sorted."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl
import pyarrow as pa

from midstream.engine.arrays import as_array, as_column, is_valid
from midstream.engine.encode import ARRIVAL_EPOCH, HASH, time_column
from midstream.engine.event_times import robust_range
from midstream.engine.index_rows import IndexRows, in_time_order, sort_rows
from midstream.engine.payload import make_segments
from midstream.engine.program import Program, StreamCounts
from midstream.engine.references import (
    MAX_POSITIONS,
    READ_LESS_HINT,
    backfilled_segment_of,
    epoch_of_segment,
    new_references,
    segment_of,
)
from midstream.errors import StreamError
from midstream.plan.layout import FragmentInput, Key
from midstream.plan.state_id import StateId

# Arrow's offsets of text and binary have 31 bits.
MAX_COLUMN_BYTES = 1 << 31

REASON = "#reason"
"""The column that says why a row was set aside: late, from the future, or without a time."""
_REASONS = pl.Series(["late", "future", "null time"]).to_arrow()
_LATE, _FUTURE, _NULL_TIME = range(3)


@dataclass(frozen=True)
class Ingested:
    """Rows that have entered a fragment, and their payload."""

    rows: IndexRows
    payload: pa.Table
    first_epoch: int
    """The first epoch in which any of the rows arrived."""


@dataclass(frozen=True)
class Admitted:
    """The rows of a stream that are in time, their counts, and the rows that are set aside."""

    table: pa.Table
    count: StreamCounts
    late: pa.Table | None
    """None if there are none."""


def admit(program: Program, stream: str, table: pa.Table) -> Admitted:
    """Set aside the rows of a stream that are late, from the future, or without a time."""
    time = table.column(time_column(stream))
    watermark, latest_allowed = program.watermarks[stream], program.latest_allowed.get(stream)
    has_time, times = is_valid(time), as_array(time)
    is_future = np.zeros_like(has_time) if latest_allowed is None else has_time & (times > latest_allowed)
    in_time = has_time & ~is_future
    if watermark is not None:
        in_time &= times >= watermark
    accepted = table if in_time.all() else table.filter(as_column(in_time))
    set_aside = table.num_rows - accepted.num_rows
    accepted_times = times[in_time]
    nulls, future = time.null_count, int(is_future.sum())
    count = StreamCounts(
        accepted=accepted.num_rows,
        late=set_aside - nulls - future,
        null_time=nulls,
        latest=int(accepted_times.max()) if accepted.num_rows else None,
        bytes=accepted.nbytes,
        future=future,
        ranges=(robust_range(accepted_times, program.query.longest_window),) if accepted.num_rows else (),
    )
    if not set_aside:
        return Admitted(accepted, count, None)
    out = ~in_time
    reasons = np.where(has_time[out], np.where(is_future[out], _FUTURE, _LATE), _NULL_TIME)
    late = table.filter(as_column(out)).append_column(REASON, _REASONS.take(as_column(reasons)))
    return Admitted(accepted, count, late)


def ingest(program: Program, partition: int, key: Key, target: FragmentInput, table: pa.Table) -> Ingested:
    """Give references to new rows; index rows are sorted, payload stays in the order of arrival."""
    segments = [(segment_of(program.epoch, partition), table.num_rows)]
    return _ingest(program, key, target, table, segments)


def ingest_backfilled(
    program: Program, partition: int, key: Key, target: FragmentInput, table: pa.Table, batch: int
) -> Ingested:
    """Give references to a batch of rows that a migration moves here.

    Each keeps the epoch in which it arrived. Combined rows have the epochs of their components as columns.
    """
    partitions = program.places.partitions
    if not target.is_stream:
        segment = backfilled_segment_of(program.epoch - 1, partition, partitions, batch)
        return _ingest(program, key, target, table, [(segment, table.num_rows)])
    order = np.argsort(as_array(table.column(ARRIVAL_EPOCH)), kind="stable")
    table = table.take(as_column(order))
    epochs, counts = np.unique(as_array(table.column(ARRIVAL_EPOCH)), return_counts=True)
    segments = [
        (backfilled_segment_of(epoch, partition, partitions, batch), count)
        for epoch, count in zip(epochs.tolist(), counts.tolist(), strict=True)
    ]
    return _ingest(program, key, target, table, segments)


def _ingest(
    program: Program, key: Key, target: FragmentInput, table: pa.Table, segments: Sequence[tuple[int, int]]
) -> Ingested:
    """Give references to rows in the order of segments, each of which has an id and a number of rows."""
    references = [new_references(segment, count) for segment, count in segments]
    streams = program.query.windows.narrowest_first(target.streams)
    times = {s: as_array(table.column(time_column(s))) for s in streams}
    by_input = {target.id: np.concatenate(references)}
    rows = in_time_order(sort_rows(key, as_array(table.column(HASH)), by_input, times))
    starts = np.cumsum([0, *(count for _, count in segments)])[:-1]
    latest = [np.maximum.reduceat(times[s], starts).tolist() for s in target.streams]
    described = [
        (segment, count, *largest)
        for (segment, count), largest in zip(segments, zip(*latest, strict=True), strict=True)
    ]
    payload = make_segments(table.select(list(target.columns)), described)
    return Ingested(rows, payload, epoch_of_segment(segments[0][0]))


def concat_arrivals(name: StateId, tables: Sequence[pa.Table]) -> pa.Table:
    """All rows that arrived at an input in one table, if its columns are not too large."""
    table = pa.concat_tables(tables)
    # The size of whole buffers is known at once; that of the parts that columns use is summed up.
    if sum(part.get_total_buffer_size() for part in tables) < MAX_COLUMN_BYTES:
        return table
    for column in table.column_names:
        if table.column(column).nbytes >= MAX_COLUMN_BYTES:
            raise StreamError(
                "an epoch must bring at most 2 GiB of a column to one partition",
                got=f"{table.column(column).nbytes:,} bytes of {column} of {name}",
                hint=READ_LESS_HINT,
            )
    return table


def with_replayed(
    target: FragmentInput, replayed: Sequence[pa.Table], arrived: Sequence[pa.Table]
) -> list[pa.Table]:
    """Replayed rows and those that have arrived, which may have more columns, for the late table."""
    if not replayed:
        return list(arrived)
    names = [HASH, *map(time_column, target.streams), *target.columns]
    return [table.select(names) for table in (*replayed, *arrived)]


def backfill_batches(tables: Sequence[pa.Table]) -> Iterator[pa.Table]:
    """Rows that a migration moves here, in as few batches as segments and columns can hold."""
    batch: list[pa.Table] = []
    rows = size = 0
    for part in (part for table in tables for part in _parts(table)):
        if batch and (rows + part.num_rows > MAX_POSITIONS or size + part.nbytes >= MAX_COLUMN_BYTES):
            yield pa.concat_tables(batch)
            batch, rows, size = [], 0, 0
        batch.append(part)
        rows, size = rows + part.num_rows, size + part.nbytes
    if batch:
        yield pa.concat_tables(batch)


def _parts(table: pa.Table) -> Iterator[pa.Table]:
    """A table in parts that are small enough for a batch."""
    count = max(-(-table.num_rows // MAX_POSITIONS), 1 + 2 * table.nbytes // MAX_COLUMN_BYTES)
    rows = max(1, -(-table.num_rows // count))
    return (table.slice(start, rows) for start in range(0, table.num_rows, rows))
