"""The streams that the pages talk about, as files."""

import os
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

_Row = tuple[Any, ...]
_MONEY = pa.decimal128(8, 2)
_TIME = pa.timestamp("us", tz="UTC")
_SCHEMAS = {
    "orders": pa.schema(
        [("id", pa.int64()), ("item", pa.string()), ("price", _MONEY), ("ordered_at", _TIME)]
    ),
    "payments": pa.schema([("order_id", pa.int64()), ("amount", _MONEY), ("paid_at", _TIME)]),
    "shipments": pa.schema(
        [("order_id", pa.int64()), ("tracking", pa.string()), ("carrier", pa.string()), ("shipped_at", _TIME)]
    ),
    "deliveries": pa.schema([("tracking", pa.string()), ("place", pa.string()), ("delivered_at", _TIME)]),
}
# A list per epoch. The last column is a time of day; order 5 comes an hour after its time.
_ROWS: dict[str, list[list[_Row]]] = {
    "orders": [
        [(1, "tea", "4.50", "12:00"), (2, "coffee", "7.20", "12:05"), (3, "cocoa", "3.90", "12:10")],
        [(4, "tea", "4.50", "12:50"), (5, "bread", "2.10", "11:50")],
    ],
    "payments": [
        [(1, "4.50", "12:01"), (2, "7.20", "12:07")],
        [(3, "3.00", "12:31"), (4, "5.00", "12:52"), (None, "1.00", "12:53")],
    ],
    "shipments": [
        [(1, "T-10", "Gull", "12:20")],
        [(2, "T-11", "Heron", "12:33"), (4, "T-12", "Gull", "12:58")],
    ],
    "deliveries": [[], [("T-10", "door", "12:40")]],
}


def write_shop(folder: Path) -> None:
    """Write a folder per stream, and in it a Parquet file per epoch."""
    for stream, epochs in _ROWS.items():
        (folder / stream).mkdir()
        for epoch, rows in enumerate(epochs):
            path = folder / stream / f"{epoch}.parquet"
            pq.write_table(_table(_SCHEMAS[stream], rows), path)
            # Spark takes the oldest file first, and writing is too quick to tell them apart.
            os.utime(path, (1_700_000_000 + epoch,) * 2)


def _table(schema: pa.Schema, rows: list[_Row]) -> pa.Table:
    columns = list(zip(*rows, strict=True)) or [()] * len(schema)
    return pa.table(
        [_column(f.type, values) for f, values in zip(schema, columns, strict=True)], schema=schema
    )


def _column(kind: pa.DataType, values: _Row) -> pa.Array:
    if kind == _TIME:
        return pa.array([f"2026-03-02 {value}:00Z" for value in values], pa.string()).cast(kind)
    return pa.array([Decimal(v) for v in values] if kind == _MONEY else list(values), kind)
