"""Intake of rows: late ones are set aside, all others get references and are sorted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from midstream.engine.arrays import as_array, as_column
from midstream.engine.encode import ARRIVAL_EPOCH, HASH, time_column
from midstream.engine.index_rows import IndexRows, in_time_order, sort_rows
from midstream.engine.payload import make_segments
from midstream.engine.program import InputCount, Program
from midstream.engine.references import READ_LESS_HINT, new_references, segment_of
from midstream.errors import MigrationError, StreamError
from midstream.plan.layout import FragmentInput, Key
from midstream.plan.state_id import StateId

# Arrow's offsets of text and binary have 31 bits.
_MAX_COLUMN_BYTES = 1 << 31

REASON = "#reason"
"""The column that says why a row was set aside: late, from the future, or without a time."""


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
    count: InputCount
    late: pa.Table


def admit(program: Program, stream: str, table: pa.Table) -> Admitted:
    """Set aside the rows of a stream that are late, from the future, or without a time."""
    time = table.column(time_column(stream))
    watermark, latest_accepted = program.watermarks[stream], program.latest_accepted.get(stream)
    nulls = time.null_count
    times = pl.Series(pl.from_arrow(time))
    in_time, future = times.is_not_null(), 0
    if latest_accepted is not None:
        is_future = (times > latest_accepted).fill_null(value=False)
        in_time &= ~is_future
        future = int(is_future.sum())
    if watermark is not None:
        in_time &= (times >= max(watermark, -(2**63))).fill_null(value=False)
    accepted = table if in_time.all() else table.filter(in_time.to_arrow())
    set_aside = table.num_rows - accepted.num_rows
    latest = pc.max(accepted.column(time_column(stream))).as_py()
    count = InputCount(
        accepted=accepted.num_rows,
        late=set_aside - nulls - future,
        null_time=nulls,
        latest=latest,
        bytes=accepted.nbytes,
        future=future,
    )
    return Admitted(accepted, count, _set_aside(table, times, in_time, latest_accepted))


def _set_aside(
    table: pa.Table, times: pl.Series, in_time: pl.Series, latest_accepted: int | None
) -> pa.Table:
    """The rows that are not in time, each with the reason why."""
    if in_time.all():
        return table.slice(0, 0).append_column(REASON, pl.Series([], dtype=pl.String).to_arrow())
    times = times.filter(~in_time)
    reasons = pl.select(
        pl.when(times.is_null())
        .then(pl.lit("null time"))
        .when(times > latest_accepted if latest_accepted is not None else pl.lit(value=False))
        .then(pl.lit("future"))
        .otherwise(pl.lit("late"))
    ).to_series()
    return table.filter((~in_time).to_arrow()).append_column(REASON, reasons.to_arrow())


def ingest(program: Program, partition: int, key: Key, target: FragmentInput, table: pa.Table) -> Ingested:
    """Give references to new rows; index rows are sorted, payload stays in the order of arrival."""
    return _ingest(program, partition, key, target, table, [(program.epoch, table.num_rows)])


def ingest_moved(
    program: Program, partition: int, key: Key, target: FragmentInput, table: pa.Table
) -> Ingested:
    """Give references to rows that a migration moves here: each keeps the epoch in which it arrived."""
    if not target.is_stream:
        runs = [(program.epoch - 1, table.num_rows)]
        return _ingest(program, partition, key, target, table, runs, moved=True)
    order = np.argsort(as_array(table.column(ARRIVAL_EPOCH)), kind="stable")
    table = table.take(as_column(order))
    epochs, counts = np.unique(as_array(table.column(ARRIVAL_EPOCH)), return_counts=True)
    runs = list(zip(epochs.tolist(), counts.tolist(), strict=True))
    return _ingest(program, partition, key, target, table, runs, moved=True)


def _ingest(
    program: Program,
    partition: int,
    key: Key,
    target: FragmentInput,
    table: pa.Table,
    runs: Sequence[tuple[int, int]],
    *,
    moved: bool = False,
) -> Ingested:
    """Give references to rows in order of epochs; ``runs`` are the epochs and how many rows each has."""
    references = [new_references(epoch, partition, count, moved=moved) for epoch, count in runs]
    streams = program.query.windows.narrowest_first(target.streams)
    times = {s: as_array(table.column(time_column(s))) for s in streams}
    by_input = {target.id: np.concatenate(references)}
    rows = in_time_order(sort_rows(key, as_array(table.column(HASH)), by_input, times))
    starts = np.cumsum([0, *(count for _, count in runs)])[:-1]
    latest = [np.maximum.reduceat(times[s], starts).tolist() for s in target.streams]
    segments = [
        (segment_of(epoch, partition, moved=moved), count, *largest)
        for (epoch, count), largest in zip(runs, zip(*latest, strict=True), strict=True)
    ]
    return Ingested(rows, make_segments(table.select(list(target.columns)), segments), runs[0][0])


def concat_arrivals(name: StateId, tables: Sequence[pa.Table], *, moved: bool = False) -> pa.Table:
    """All rows that arrived at an input in one table, if its columns are not too large."""
    table = pa.concat_tables(tables)
    for column in table.column_names:
        if table.column(column).nbytes >= _MAX_COLUMN_BYTES and moved:
            raise MigrationError(
                "a state must have at most 2 GiB of a column in one partition to be moved there",
                got=f"{table.column(column).nbytes:,} bytes of {column} of {name}",
                hint="move to a plan that keeps the state by the key it has",
            )
        if table.column(column).nbytes >= _MAX_COLUMN_BYTES:
            raise StreamError(
                "an epoch must bring at most 2 GiB of a column to one partition",
                got=f"{table.column(column).nbytes:,} bytes of {column} of {name}",
                hint=READ_LESS_HINT,
            )
    return table
