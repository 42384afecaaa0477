"""Ingesting rows: what is late is set aside, everything else gets a reference and is sorted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from midstream.engine.arrays import as_array, as_column
from midstream.engine.encode import ARRIVED, HASH, time_column
from midstream.engine.index_rows import IndexRows, in_time_order, sort_rows
from midstream.engine.payload import make_segments
from midstream.engine.program import InputCount, Program
from midstream.engine.references import READ_LESS, new_references, segment_of
from midstream.errors import MigrationError, StreamError
from midstream.plan.layout import FragmentInput, Key
from midstream.plan.state_id import StateId

_LARGEST_COLUMN = 1 << 31

REASON = "#reason"
"""The column that says why a row was set aside: late, from the future, or without a time."""


@dataclass(frozen=True)
class Ingested:
    """Rows that have entered a fragment, and their payload."""

    rows: IndexRows
    payload: pa.Table
    first_epoch: int
    """The first epoch of which there are rows."""


@dataclass(frozen=True)
class Admitted:
    """The rows of a stream that are in time, and those that are not."""

    table: pa.Table
    count: InputCount
    late: pa.Table


def admit(program: Program, stream: str, table: pa.Table) -> Admitted:
    """Separate the rows of a stream that are late, from the future, or have no time."""
    time = table.column(time_column(stream))
    watermark, last = program.watermarks[stream], program.latest_accepted.get(stream)
    nulls = time.null_count
    times = pl.Series(pl.from_arrow(time))
    in_time, future = times.is_not_null(), 0
    if last is not None:
        ahead = (times > last).fill_null(value=False)
        in_time &= ~ahead
        future = int(ahead.sum())
    if watermark is not None:
        in_time &= (times >= max(watermark, -(2**63))).fill_null(value=False)
    accepted = table if in_time.all() else table.filter(in_time.to_arrow())
    dropped = table.num_rows - accepted.num_rows
    latest = pc.max(accepted.column(time_column(stream))).as_py()
    late = dropped - nulls - future
    count = InputCount(
        accepted=accepted.num_rows,
        late=late,
        null_time=nulls,
        latest=latest,
        bytes=accepted.nbytes,
        future=future,
    )
    return Admitted(accepted, count, _with_reasons(table, times, in_time, last))


def _with_reasons(table: pa.Table, times: pl.Series, in_time: pl.Series, last: int | None) -> pa.Table:
    """The rows that are not in time, each with the reason why."""
    if in_time.all():
        return table.slice(0, 0).append_column(REASON, pl.Series([], dtype=pl.String).to_arrow())
    aside = times.filter(~in_time)
    reasons = pl.select(
        pl.when(aside.is_null())
        .then(pl.lit("null time"))
        .when(aside > last if last is not None else pl.lit(value=False))
        .then(pl.lit("future"))
        .otherwise(pl.lit("late"))
    ).to_series()
    return table.filter((~in_time).to_arrow()).append_column(REASON, reasons.to_arrow())


def ingest(program: Program, partition: int, key: Key, target: FragmentInput, table: pa.Table) -> Ingested:
    """Give new rows references; only these are sorted, the payload stays in the order of arrival."""
    return _ingest(program, partition, key, target, table, [(program.epoch, table.num_rows)])


def ingest_moved(
    program: Program, partition: int, key: Key, target: FragmentInput, table: pa.Table
) -> Ingested:
    """Give references to rows that belong to the state already: each keeps the epoch in which it arrived."""
    if not target.is_stream:
        runs = [(program.epoch - 1, table.num_rows)]
        return _ingest(program, partition, key, target, table, runs, moved=True)
    order = np.argsort(as_array(table.column(ARRIVED)), kind="stable")
    table = table.take(as_column(order))
    epochs, counts = np.unique(as_array(table.column(ARRIVED)), return_counts=True)
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
    """Give references to rows of which so many of each epoch follow each other."""
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
    """All that arrived of an input. Arrow's offsets of text and binary have 31 bits."""
    table = pa.concat_tables(tables)
    for column in table.column_names:
        if table.column(column).nbytes >= _LARGEST_COLUMN and moved:
            raise MigrationError(
                "a state must have at most 2 GiB of a column in one partition to be moved there",
                got=f"{table.column(column).nbytes:,} bytes of {column} of {name}",
                hint="move to a plan that keeps the state by the key it has",
            )
        if table.column(column).nbytes >= _LARGEST_COLUMN:
            raise StreamError(
                "an epoch must bring at most 2 GiB of a column to one partition",
                got=f"{table.column(column).nbytes:,} bytes of {column} of {name}",
                hint=READ_LESS,
            )
    return table
