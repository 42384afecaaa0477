"""Late rows of all streams in one table: what they share as columns, the row itself as JSON."""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl
import pyarrow as pa

from midstream.engine.encode import time_column
from midstream.engine.error_context import error_context
from midstream.engine.intake import REASON
from midstream.plan.layout import column_name
from midstream.query.query import Query
from midstream.query.stream import ColumnRef
from midstream.query.types import TIMESTAMP
from midstream.storage.json_text import json_objects, json_texts

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
    count = rows.num_rows
    texts: list[tuple[str, pl.Series]] = []
    for engine_name, name in columns.items():
        with error_context(streams=[stream], columns=[ColumnRef(stream, (name,))]):
            texts.append((name, json_texts(rows.column(engine_name))))
    time = rows.column(time_column(stream))
    with error_context(streams=[stream], columns=["row"]):
        shared = pl.select(
            stream=pl.repeat(stream, count, dtype=pl.String),
            reason=pl.lit(pl.Series(pl.from_arrow(rows.column(REASON)))),
            batchId=pl.repeat(epoch, count, dtype=pl.Int64),
            row=pl.lit(json_objects(texts, count)),
        ).to_arrow()
        # Not through Polars, whose calendar ends before that of Spark.
        return shared.add_column(2, "time", time.cast(TIMESTAMP)).cast(LATE_SCHEMA)


def late_columns(query: Query) -> dict[str, dict[str, str]]:
    """For each stream: the names of a late row's columns, from those in the engine to those of the user."""
    return {
        s.name: {column_name(ColumnRef(s.name, (name,))): name for name in s.schema.names}
        for s in query.streams
    }
