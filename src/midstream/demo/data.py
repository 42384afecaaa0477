"""The streams of the demo: the rows of each epoch, and the files that Spark reads them from.

As in real streams, rows are out of order, and some are late; other irregularities are in
:class:`midstream.demo.shop.Shares`. The same arguments give the same rows.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from midstream.demo.shop import MINUTE, USUAL, Chance, Shares, open_shop

EPOCH = 20 * MINUTE
"""The event time that one epoch covers."""
LATENESS = 10 * MINUTE
"""The longest delay of a row, except for stragglers."""
STRAGGLING = 0.003
"""The share of rows with a much longer delay."""
OPENING = 1_772_438_400_000_000
"""When the first epoch begins: 2026-03-02, 08:00 UTC."""

Epochs = dict[str, list[pa.Table]]
"""For each stream, a table per epoch."""

# Epochs of orders before the first one, so that every stream has its usual rate when the demo begins.
_WARM_UP_EPOCHS = 6
_STREAM_COUNT = 5


def generate(epochs: int, rows: int, seed: int, shares: Shares = USUAL) -> Epochs:
    """The rows of every epoch: about ``rows`` over all streams."""
    random = np.random.default_rng(seed)
    generated = epochs + _WARM_UP_EPOCHS
    count = max(1, rows // _STREAM_COUNT) * generated
    placed = OPENING - _WARM_UP_EPOCHS * EPOCH + random.integers(0, generated * EPOCH, count)
    tables = open_shop(placed, random, shares)
    return {name: list(_arrivals(table, epochs, random)) for name, table in tables.items()}


def _arrivals(table: pa.Table, epochs: int, random: np.random.Generator) -> Iterator[pa.Table]:
    """Split a table, whose last column is its time, into epochs, in order of arrival."""
    count, chance = table.num_rows, Chance(random)
    times = table.column(-1).cast(pa.int64()).to_numpy()
    delays = np.minimum(random.exponential(MINUTE, count), LATENESS).astype(np.int64)
    straggling = chance.flags(STRAGGLING, count)
    arrivals = times + np.where(straggling, chance.minutes(45, 90, count), delays)
    order = np.argsort(arrivals, kind="stable")
    bounds = np.searchsorted(arrivals[order], OPENING + EPOCH * np.arange(epochs + 1)).tolist()
    for start, stop in pairwise(bounds):
        yield table.take(pa.array(order[start:stop]))


def write(streams: Epochs, folder: Path) -> None:
    """Write a Parquet file per stream and epoch."""
    for name, tables in streams.items():
        (folder / name).mkdir(parents=True)
        now = int(folder.stat().st_mtime)
        for epoch, table in enumerate(tables):
            path = folder / name / f"epoch-{epoch:04d}.parquet"
            pq.write_table(table, path)
            # Spark takes the oldest file first, and files are written too quickly to differ in time.
            os.utime(path, (now + epoch - len(tables),) * 2)


def read(folder: Path) -> Epochs:
    """Read what :func:`write` wrote."""
    return {
        stream.name: [pq.read_table(path) for path in sorted(stream.glob("epoch-*.parquet"))]
        for stream in folder.iterdir()
    }
