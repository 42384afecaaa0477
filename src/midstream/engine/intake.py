"""Taking rows in: what is late stays out, everything else gets a reference and is sorted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from midstream.engine.encode import HASH, time_column
from midstream.engine.payload import make_segment
from midstream.engine.program import InputCount, Program
from midstream.engine.rows import READ_LESS, Rows, new_references, segment_of, sort_rows
from midstream.errors import StreamError
from midstream.plan.layout import FragmentInput, Key, StateId

_LARGEST_COLUMN = 1 << 31


@dataclass(frozen=True)
class Taken:
    """Rows that have entered a fragment, and their payload."""

    rows: Rows
    segment: pa.Table


@dataclass(frozen=True)
class Admitted:
    """The rows of a stream that are in time, and those that are not."""

    table: pa.Table
    count: InputCount
    late: pa.Table


def admit(program: Program, stream: str, table: pa.Table) -> Admitted:
    """Separate the rows of a stream that are late or have no time."""
    time = table.column(time_column(stream))
    watermark = program.watermarks[stream]
    in_time = pc.is_valid(time)
    nulls = time.null_count
    if watermark is not None:
        earliest = pa.scalar(max(watermark, -(2**63)), pa.int64())
        in_time = pc.and_(in_time, pc.fill_null(pc.greater_equal(time, earliest), False))
    accepted = table if pc.all(in_time).as_py() else table.filter(in_time)
    dropped = table.num_rows - accepted.num_rows
    latest = pc.max(accepted.column(time_column(stream))).as_py()
    count = InputCount(accepted.num_rows, dropped - nulls, nulls, 0, latest)
    return Admitted(accepted, count, table.filter(pc.invert(in_time)) if dropped else table.slice(0, 0))


def take_in(
    program: Program,
    partition: int,
    key: Key,
    entrance: FragmentInput,
    table: pa.Table,
    *,
    moved: bool = False,
) -> Taken:
    """Give rows references; only these are sorted, the payload stays as it came."""
    references = new_references(program.epoch, partition, table.num_rows, moved=moved)
    times = {s: table.column(time_column(s)).to_numpy() for s in entrance.streams}
    rows = sort_rows(key, table.column(HASH).to_numpy(), {entrance.id: references}, times)
    segment = make_segment(
        table.select(list(entrance.columns)),
        segment_of(program.epoch, partition, moved=moved),
        [int(times[s].max()) for s in entrance.streams],
    )
    return Taken(rows, segment)


def together(name: StateId, tables: Sequence[pa.Table]) -> pa.Table:
    """All that arrived of an input. Arrow's offsets of text and binary have 31 bits."""
    table = pa.concat_tables(tables)
    for column in table.column_names:
        if table.column(column).nbytes >= _LARGEST_COLUMN:
            raise StreamError(
                "an epoch must bring at most 2 GiB of a column to one partition",
                got=f"{table.column(column).nbytes:,} bytes of {column} of {name}",
                hint=READ_LESS,
            )
    return table
