"""The streams of the demo: which rows come in which epoch, and the files that Spark reads them from.

They do what real streams do. Rows come out of order, and some of them too late; what else goes wrong is in
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
"""How long rows are under way at most, but for stragglers."""
STRAGGLING = 0.003
"""The share of rows that come long after that."""
OPENING = 1_772_438_400_000_000
"""When the first epoch begins: 2026-03-02, 08:00 UTC."""

Epochs = dict[str, list[pa.Table]]
"""For each stream, a table per epoch."""

# Epochs of orders before the first one, so that every stream is in full swing when the demo begins.
_BEFORE = 6
_STREAMS = 5


def generate(epochs: int, rows: int, seed: int, shares: Shares = USUAL) -> Epochs:
    """The rows of every epoch: about ``rows`` over all streams."""
    random = np.random.default_rng(seed)
    count = max(1, rows // _STREAMS) * (epochs + _BEFORE)
    placed = OPENING - _BEFORE * EPOCH + random.integers(0, (epochs + _BEFORE) * EPOCH, count)
    tables = open_shop(placed, random, shares)
    return {name: list(_arrivals(table, epochs, random)) for name, table in tables.items()}


def _arrivals(table: pa.Table, epochs: int, random: np.random.Generator) -> Iterator[pa.Table]:
    """Cut a table, whose last column is its time, into what comes in each epoch, in order of arrival."""
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
            # Spark takes the oldest file first, and writing is too quick to tell them apart.
            os.utime(path, (now + epoch - len(tables),) * 2)


def read(folder: Path) -> Epochs:
    """Read what :func:`write` wrote."""
    return {
        stream.name: [pq.read_table(path) for path in sorted(stream.glob("epoch-*.parquet"))]
        for stream in folder.iterdir()
    }
