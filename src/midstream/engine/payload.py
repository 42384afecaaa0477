"""Payload: the columns that users see, stored once, in the order in which rows arrived.

Rows that arrive together in a partition are a **segment**. The row of a reference is found by arithmetic: the
start of its segment plus its position. Segments stay whole, so slices of payload are merged by concatenating
them, and expired rows are dropped by the segment.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa

from midstream.engine.arrays import as_column
from midstream.engine.references import Integers, epoch_of_segment, split_references
from midstream.errors import InternalError

_METADATA_KEY = b"midstream.segments"

# Tables that are no larger together are made one when rows of them are first fetched.
_COMBINED_BYTES = 1 << 16

IsUseless = Callable[[Sequence[int], int], bool]
"""Whether rows are of no use that are not after these times, one of each stream, nor after an epoch."""


def make_segments(table: pa.Table, segments: Sequence[tuple[int, ...]]) -> pa.Table:
    """Rows as the table of a payload slice. ``segments`` are as in :func:`segments_of`."""
    return _with_segments(table, np.array(segments, np.int64))


def merge_payload(tables: Sequence[pa.Table], useless: Sequence[IsUseless]) -> pa.Table:
    """Merge the tables of payload slices, without the segments in which no row is of use."""
    pieces: list[pa.Table] = []
    live: list[list[int]] = []
    for table, is_useless in zip(tables, useless, strict=True):
        start = 0
        for entry in segments_of(table).tolist():
            segment, rows, *latest = entry
            if not is_useless(latest, epoch_of_segment(segment)):
                pieces.append(table.slice(start, rows))
                live.append(entry)
            start += rows
    merged = pa.concat_tables(pieces) if pieces else tables[0].slice(0, 0)
    width = segments_of(tables[0]).shape[1]
    return _with_segments(merged.combine_chunks(), np.array(live, np.int64).reshape(-1, width))


def segments_of(table: pa.Table) -> Integers:
    """One row per segment, in their order in the table: id, number of rows, largest time of each stream."""
    width, _, body = table.schema.metadata[_METADATA_KEY].partition(b":")
    return np.frombuffer(body, np.int64).reshape(-1, int(width))


def _with_segments(table: pa.Table, segments: Integers) -> pa.Table:
    encoded = b"%d:" % segments.shape[1] + segments.tobytes()
    return table.replace_schema_metadata({_METADATA_KEY: encoded})


@dataclass(frozen=True)
class Payload:
    """The payload of one input in one partition, as the tables of its slices.

    Most epochs fetch from few inputs, so tables are opened only when they are first needed.
    """

    open_tables: Callable[[], Sequence[pa.Table]]

    @cached_property
    def tables(self) -> Sequence[pa.Table]:
        """The tables, oldest first."""
        return self.open_tables()

    def fetch(self, columns: Sequence[str], references: Integers) -> pa.Table:
        """The columns of the referenced rows, in the order of the references."""
        if not self.tables:
            raise InternalError("every reference must lead to a row", got="no payload at all")
        return _gather([table.select(columns) for table in self._pieces], self._positions(references))

    @cached_property
    def _pieces(self) -> Sequence[pa.Table]:
        """The tables, or if they are small, one table with all their rows: fetching takes less time."""
        if len(self.tables) < 2 or sum(t.get_total_buffer_size() for t in self.tables) > _COMBINED_BYTES:
            return self.tables
        return [pa.concat_tables(self.tables).combine_chunks()]

    @cached_property
    def _starts(self) -> tuple[Integers, Integers]:
        """The ids of segments in ascending order, and the position at which each begins."""
        entries = np.concatenate([segments_of(table)[:, :2] for table in self.tables])
        starts = np.cumsum(entries[:, 1]) - entries[:, 1]
        order = np.argsort(entries[:, 0])
        return entries[order, 0], starts[order]

    def _positions(self, references: Integers) -> Integers:
        segments, starts = self._starts
        referenced, position = split_references(references)
        index = np.minimum(np.searchsorted(segments, referenced), len(segments) - 1)
        if not np.array_equal(segments[index], referenced):
            missing = int(referenced[segments[index] != referenced][0])
            raise InternalError("every reference must lead to a row", got=f"segment {missing}")
        return starts[index] + position


def _gather(tables: Sequence[pa.Table], positions: Integers) -> pa.Table:
    """The rows at positions in the concatenation of tables.

    Arrow's ``take`` on a chunked table would first copy all chunks into one: the whole state for a few rows,
    and it fails for more than 2 GiB of text.
    """
    if len(tables) == 1:
        return tables[0].take(as_column(positions))
    starts = np.cumsum([0, *(table.num_rows for table in tables)])
    table_index = np.searchsorted(starts, positions, side="right") - 1
    order = np.argsort(table_index.astype(np.uint16), kind="stable")
    bounds = np.searchsorted(table_index[order], np.arange(len(tables) + 1))
    pieces = [
        table.take(as_column(positions[order[first:last]] - start))
        for table, start, first, last in zip(tables, starts, bounds, bounds[1:], strict=False)
        if last > first
    ]
    if len(pieces) <= 1:
        return pieces[0] if pieces else tables[0].slice(0, 0)
    inverse = np.empty_like(order)
    inverse[order] = np.arange(len(order))
    return pa.concat_tables(pieces).take(as_column(inverse))
