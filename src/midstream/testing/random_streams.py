"""Generated streams: epochs of Arrow tables with late rows, nulls and duplicates, the same for a seed.

These are for inputs of thousands of rows; if a failing example should shrink to a few rows, use
:mod:`midstream.testing.hypothesis_strategies`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from midstream.query.stream import ColumnRef, Stream
from midstream.values import Micros

SECOND = 1_000_000
_LATENESS = Micros(5 * SECOND)
_EVERY = Micros(10 * SECOND)
START = 1_704_067_200 * SECOND  # 2024-01-01
SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("t", pa.timestamp("us", tz="UTC")),
        ("k", pa.int64()),
        ("k2", pa.string()),
        ("v", pa.int32()),
    ]
)
"""Every generated stream has these columns; ``id`` is unique except for duplicates."""


@dataclass(frozen=True)
class Shape:
    """How a stream behaves. Shares are of its rows, between 0 and 1."""

    rows: int = 20
    """Rows per epoch."""
    keys: int = 8
    """Distinct values of ``k``; ``k2`` has half as many."""
    hot: float = 0.0
    """Share of rows that all have the same ``k``, besides those that have it by chance."""
    lateness: Micros = _LATENESS
    """Rows are out of order by up to this much."""
    late: float = 0.0
    """Share of rows that are late by more."""
    null_keys: float = 0.0
    null_times: float = 0.0
    duplicates: float = 0.0
    """Share of rows that are copies of the row before them."""
    silent: frozenset[int] = frozenset()
    """Epochs without a row."""


def stream(name: str, shape: Shape | None = None) -> Stream:
    """The declaration of a generated stream in a query."""
    return Stream(name, SCHEMA, ColumnRef(name, ("t",)), shape.lateness if shape else _LATENESS)


def generate(
    shapes: Mapping[str, Shape],
    epochs: int,
    seed: int,
    every: Micros = _EVERY,
) -> list[dict[str, pa.Table]]:
    """The epochs of some streams; each covers ``every`` of event time. Same arguments, same tables."""
    return [
        {
            name: _table(shape, epoch, every, np.random.default_rng((seed, number, epoch)))
            for number, (name, shape) in enumerate(shapes.items())
        }
        for epoch in range(epochs)
    ]


def _table(shape: Shape, epoch: int, every: int, random: np.random.Generator) -> pa.Table:
    rows = 0 if epoch in shape.silent else shape.rows

    def flags(share: float) -> npt.NDArray[np.bool_]:
        return random.random(rows) < share

    keys = np.where(flags(shape.hot), 0, random.integers(0, shape.keys, rows))
    words = random.integers(0, max(1, shape.keys // 2), rows).astype("U")
    times = START + epoch * every + random.integers(0, every, rows)
    times -= random.integers(0, shape.lateness + 1, rows)
    times -= np.where(flags(shape.late), 3 * (shape.lateness + every), 0)
    table = pa.table(
        [
            pa.array(epoch * 1_000_000 + np.arange(rows)),
            pa.array(times, mask=flags(shape.null_times)).cast(SCHEMA.field("t").type),
            pa.array(keys, mask=flags(shape.null_keys)),
            pa.array(words.tolist(), pa.string()),
            pa.array(random.integers(-5, 20, rows), pa.int32()),
        ],
        schema=SCHEMA,
    )
    source = np.arange(rows) - np.where(flags(shape.duplicates), 1, 0)
    return table.take(pa.array(np.maximum(source, 0)))
