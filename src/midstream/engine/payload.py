"""Payload: the columns that users see, stored once, in the order in which rows arrived.

Rows that arrive together in a partition are a **segment**. A reference leads to its row by arithmetic:
find its segment among those that are here, add the position. Segments are kept whole, so merging slices of
payload is putting them one after the other, and expired rows leave a segment at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa

from midstream.engine.arrays import as_column
from midstream.engine.references import Integers, split_references
from midstream.errors import InternalError
from midstream.state.purge import Purge

_METADATA = b"midstream.segments"


def make_segments(table: pa.Table, segments: Sequence[tuple[int, ...]]) -> pa.Table:
    """Rows as the table of a slice. For each segment: its number, rows, largest time of each stream."""
    return _with_segments(table, np.array(segments, np.int64))


def merge_payload(tables: Sequence[pa.Table], streams: Sequence[str], purge: Purge) -> pa.Table:
    """Tables of slices as one, without the segments in which no row is of use any more."""
    pieces: list[pa.Table] = []
    kept: list[Integers] = []
    for table in tables:
        start = 0
        for entry in segments_of(table):
            rows = int(entry[1])
            if not purge.is_dead(streams, entry[2:].tolist()):
                pieces.append(table.slice(start, rows))
                kept.append(entry)
            start += rows
    merged = pa.concat_tables(pieces) if pieces else tables[0].slice(0, 0)
    width = segments_of(tables[0]).shape[1]
    return _with_segments(merged.combine_chunks(), np.array(kept, np.int64).reshape(-1, width))


def segments_of(table: pa.Table) -> Integers:
    """One line per segment, in the order in which they lie: segment, rows, largest time per stream."""
    width, _, body = table.schema.metadata[_METADATA].partition(b":")
    return np.frombuffer(body, np.int64).reshape(-1, int(width))


def _with_segments(table: pa.Table, segments: Integers) -> pa.Table:
    text = b"%d:" % segments.shape[1] + segments.tobytes()
    return table.replace_schema_metadata({_METADATA: text})


@dataclass(frozen=True)
class Payload:
    """The payload of one input in one partition, as the tables of its slices.

    Most epochs fetch from few inputs, so tables are opened when somebody first asks.
    """

    opened: Callable[[], Sequence[pa.Table]]

    @cached_property
    def tables(self) -> Sequence[pa.Table]:
        """The tables, oldest first."""
        return self.opened()

    def fetch(self, columns: Sequence[str], references: Integers) -> pa.Table:
        """The values of columns for the rows that are referenced, in that order."""
        if not self.tables:
            raise InternalError("every reference must lead to a row", got="no payload at all")
        return _gather([table.select(columns) for table in self.tables], self._positions(references))

    @cached_property
    def _starts(self) -> tuple[Integers, Integers]:
        """Segments in ascending order, and where each of them begins."""
        entries = np.concatenate([segments_of(table)[:, :2] for table in self.tables])
        starts = np.cumsum(entries[:, 1]) - entries[:, 1]
        order = np.argsort(entries[:, 0])
        return entries[order, 0], starts[order]

    def _positions(self, references: Integers) -> Integers:
        segments, starts = self._starts
        wanted, position = split_references(references)
        where = np.minimum(np.searchsorted(segments, wanted), len(segments) - 1)
        if not np.array_equal(segments[where], wanted):
            lost = int(wanted[segments[where] != wanted][0])
            raise InternalError("every reference must lead to a row", got=f"segment {lost}")
        return starts[where] + position


def _gather(tables: Sequence[pa.Table], positions: Integers) -> pa.Table:
    """The rows at positions of tables that follow each other.

    Arrow's own ``take`` would first copy all tables into one: the whole state for a few rows of it, and
    more than 2 GiB of text it could not. Finding the rows is done once for all columns.
    """
    starts = np.cumsum([0, *(table.num_rows for table in tables)])
    owner = np.searchsorted(starts, positions, side="right") - 1
    order = np.argsort(owner.astype(np.uint16), kind="stable")
    bounds = np.searchsorted(owner[order], np.arange(len(tables) + 1))
    pieces = [
        table.take(as_column(positions[order[first:last]] - start))
        for table, start, first, last in zip(tables, starts, bounds, bounds[1:], strict=False)
        if last > first
    ]
    if len(pieces) <= 1:
        return pieces[0] if pieces else tables[0].slice(0, 0)
    back = np.empty_like(order)
    back[order] = np.arange(len(order))
    return pa.concat_tables(pieces).take(as_column(back))
