"""Streams and queries that many tests use."""

from __future__ import annotations

import hashlib
from contextlib import AbstractContextManager
from pathlib import Path

import pyarrow as pa

from midstream.query.build import build_query
from midstream.query.query import Query
from midstream.query.stream import ColumnRef, Stream
from midstream.runtime.crash_points import crash_hook
from midstream.testing.faults import SimulatedCrash
from midstream.values import Micros

TIME = pa.timestamp("us", tz="UTC")
COLUMNS = {
    "t": TIME,
    "i": pa.int32(),
    "l": pa.int64(),
    "d": pa.decimal128(8, 2),
    "x": pa.float64(),
    "n": pa.string(),
    "f": pa.bool_(),
    "day": pa.date32(),
    "local": pa.timestamp("us"),
    "b": pa.binary(),
    "arr": pa.list_(pa.int64()),
    "s": pa.struct([("k", pa.int64()), ("Deep", pa.struct([("er", pa.string())]))]),
    "odd name": pa.int64(),
}


def make_stream(name: str, columns: dict[str, pa.DataType] | None = None, lateness: int = 0) -> Stream:
    return Stream(name, pa.schema(columns or COLUMNS), ColumnRef(name, ("t",)), Micros(lateness))


def make_query(names: str, on: list[str], **more) -> Query:
    """A query over streams with one-letter names and all kinds of columns."""
    return build_query([make_stream(name) for name in names], on, **more)


def small_query(on: list[str], names: str = "ab", lateness: int = 0, **more) -> Query:
    """A query over streams of a time, two keys and a value."""
    columns = {"t": TIME, "k": pa.int64(), "j": pa.int64(), "v": pa.string()}
    return build_query([make_stream(n, columns, lateness) for n in names], on, **more)


def rows(*lines: tuple[object, ...]) -> pa.Table:
    """Rows of :func:`small_query`: time in microseconds, k, j, v; what is left out is null."""
    names = ["t", "k", "j", "v"]
    kinds = [TIME, pa.int64(), pa.int64(), pa.string()]
    filled = [(*line, *[None] * (4 - len(line))) for line in lines]
    return pa.table(
        [pa.array([line[i] for line in filled], kind) for i, kind in enumerate(kinds)], names=names
    )


def digests(folder: Path) -> dict[str, str]:
    """All files below a folder by their digests, but for leases: asking for one leaves a trace."""
    return {
        str(path): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.parent.name != "leases"
    }


def die_at(point: str | None) -> AbstractContextManager[None]:
    """Meanwhile the process dies whenever it comes to this crash point, if any."""

    def hook(here: str) -> None:
        if here == point:
            raise SimulatedCrash(point)

    return crash_hook(hook)
