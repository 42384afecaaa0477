"""Late rows of all streams in one table: what they share as columns, the row itself as JSON."""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from midstream.engine.encode import time_column
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
    time = rows.column(time_column(stream))
    frame = pl.DataFrame({name: pl.from_arrow(rows.column(sent)) for sent, name in columns.items()})
    fields = [_for_json(frame, name) for name in frame.columns]
    as_json = frame.select(pl.struct(fields).struct.json_encode()).to_series()
    return pa.table(
        [
            pa.repeat(stream, rows.num_rows),
            pc.if_else(time.is_null(), "null time", "late"),
            time.cast(TIMESTAMP),
            pa.repeat(pa.scalar(epoch, pa.int64()), rows.num_rows),
            as_json.to_arrow(),
        ],
        schema=LATE_SCHEMA,
    )


def _for_json(frame: pl.DataFrame, name: str) -> pl.Expr:
    if frame.schema[name] == pl.Binary:
        return pl.col(name).bin.encode("base64")
    return pl.col(name)
