"""Late rows of all streams in one table: what they share as columns, the row itself as JSON."""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl
import pyarrow as pa

from midstream.engine.encode import time_column
from midstream.plan.layout import column_name
from midstream.query.query import Query
from midstream.query.stream import ColumnRef
from midstream.query.types import TIMESTAMP

LATE_SCHEMA = pa.schema(
    [
        ("stream", pa.string()),
        ("reason", pa.string()),
        ("time", TIMESTAMP),
        ("batchId", pa.int64()),
        ("row", pa.string()),
    ]
)


def late_rows(epoch: int, stream: str, rows: pa.Table, columns: Mapping[str, str]) -> pa.Table:
    """Late rows of a stream in the columns that all streams share; the row itself as JSON."""
    time = pl.Series(pl.from_arrow(rows.column(time_column(stream))))
    # Not by pl.col(name): a column may be called '*', or '^.*$', which would stand for all of them.
    frame = pl.DataFrame({name: _for_json(rows.column(sent)) for sent, name in columns.items()})
    as_json = frame.to_struct().struct.json_encode()
    shared = pl.select(
        stream=pl.repeat(stream, len(time)),
        reason=pl.when(time.is_null()).then(pl.lit("null time")).otherwise(pl.lit("late")),
        time=time.cast(pl.Datetime("us", "UTC")),
        batchId=pl.repeat(epoch, len(time), dtype=pl.Int64),
        row=as_json,
    )
    return shared.to_arrow().cast(LATE_SCHEMA)


def late_columns(query: Query) -> dict[str, dict[str, str]]:
    """For each stream: the columns of a late row as they travel, and as the user knows them."""
    return {
        s.name: {column_name(ColumnRef(s.name, (name,))): name for name in s.schema.names}
        for s in query.streams
    }


def _for_json(column: pa.ChunkedArray) -> pl.Series:
    values = pl.Series(pl.from_arrow(column))
    return values.bin.encode("base64") if values.dtype == pl.Binary else values
