"""Drawing the rows of a stream: bytes that pick from short lists of values.

One draw of bytes is fast and shrinks well; values come from the lists in :mod:`midstream.testing.domains`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from midstream.query.stream import Stream
from midstream.testing.domains import VALUES

SECOND = 1_000_000
_EPOCH_SECONDS = 10


@dataclass(frozen=True)
class KeyColumn:
    """A key column of a stream: where it is, and which values it may have."""

    path: tuple[str, ...]
    type: pa.DataType
    values: tuple[Any, ...]


def draw_epochs(
    draw: st.DrawFn, stream: Stream, keys: Sequence[KeyColumn], epochs: int, rows: int
) -> list[pa.Table | None]:
    """The stream's tables, at most ``rows`` in all; None for an epoch in which it has no table at all."""
    width = 2 + len(keys) + len(VALUES)
    count = draw(st.integers(0, rows)) if draw(st.booleans()) else rows
    data = draw(st.binary(min_size=count * width, max_size=count * width))
    lines = [data[i * width : (i + 1) * width] for i in range(count)]
    cuts = sorted(draw(st.lists(st.integers(0, count), min_size=epochs - 1, max_size=epochs - 1)))
    edges = [0, *cuts, count]
    tables: list[pa.Table | None] = []
    for epoch, (start, stop) in enumerate(pairwise(edges)):
        parts = [_row(n, lines[n], epoch, keys) for n in range(start, stop)]
        absent = not parts and draw(st.booleans())
        tables.append(None if absent else pa.Table.from_pylist(parts, schema=stream.schema))
    return tables


def _row(number: int, line: bytes, epoch: int, keys: Sequence[KeyColumn]) -> dict[str, Any]:
    # Most times are near their epoch, some long before it, a few missing.
    ahead, flags = line[0] % 16 - 4, line[1]
    second = epoch * _EPOCH_SECONDS + ahead - (60 if flags % 16 == 15 else 0)
    row: dict[str, Any] = {
        "id": number,
        "t": None if flags % 32 == 16 else second * SECOND,
    }
    for key, byte in zip(keys, line[2:], strict=False):
        value = None if byte % 32 == 30 else _pick(key.values, byte)
        if len(key.path) == 1:
            row[key.path[0]] = value
        elif flags % 32 != 17:  # otherwise the whole struct is null
            row.setdefault("s", {})[key.path[1]] = value
    for (name, column), byte in zip(VALUES.items(), line[2 + len(keys) :], strict=True):
        row[name] = _pick(column.values, byte)
    return row


def _pick(values: Sequence[Any], byte: int) -> Any:
    """The first values more often than the others, so that rows of many streams join."""
    return values[(0, 0, 1, byte // 4 % len(values))[byte % 4]]
