"""Which columns of a stream a box has stored, for another box that needs them in its own way.

States keep what their own query needs: outputs, columns of conditions, keys in the type of their class.
Where one key alone places all rows, not even that is stored, as its hash says all of it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa
from pyarrow import types

from midstream.engine.encode import SourceColumn, cast_key, time_column
from midstream.engine.hashing import values_of_hashes
from midstream.engine.index_rows import IndexRows
from midstream.plan.layout import Layout, column_name, key_column
from midstream.query.keys import KeyClass
from midstream.query.query import Query
from midstream.query.stream import ColumnRef
from midstream.query.types import canonical_type

Fetch = Callable[[IndexRows, str], pa.ChunkedArray]
"""Payload of index rows, by the name of its column."""


@dataclass(frozen=True)
class StoredColumns:
    """What a box has stored of one stream."""

    query: Query
    stream: str
    stored: frozenset[str]
    """The payload columns."""

    @staticmethod
    def of(query: Query, layout: Layout, stream: str) -> StoredColumns:
        """What the base state of a stream has in a layout."""
        inputs = (i for fragment in layout.fragments for i in fragment.inputs if i.streams == (stream,))
        return StoredColumns(query, stream, frozenset(next(inputs).columns))

    def has(self, column: SourceColumn) -> bool:
        """Whether a column can be made of what is stored."""
        if column.name == time_column(self.stream):
            return column.ref == self.query.by_name[self.stream].time
        return column_name(column.ref) in self.stored or self._key(column) is not None

    def values(self, column: SourceColumn, rows: IndexRows, fetch: Fetch) -> pa.Array | pa.ChunkedArray:
        """The column of some rows, as an encoder takes it."""
        if column.name == time_column(self.stream):
            return pa.array(rows.times[self.stream])
        if column_name(column.ref) in self.stored:
            return cast_key(fetch(rows, column_name(column.ref)), column.type)
        key_class = self._key(column)
        assert key_class is not None, "only columns are asked for that there are"  # noqa: S101
        name = key_column(self.stream, key_class.id)
        stored = name in self.stored
        values = fetch(rows, name) if stored else values_of_hashes(rows.hashes, key_class.type)
        wanted = self._type_of(column.ref) if column.type is None else column.type
        return values if values.type == wanted else cast_key(values.cast(self._type_of(column.ref)), wanted)

    def _key(self, column: SourceColumn) -> KeyClass | None:
        """The class whose values are those of a column, and are stored as such."""
        dtype = self._type_of(column.ref)
        for key_class in self.query.classes:
            if column.ref not in key_class.of(self.stream):
                continue
            # A class may have a coarser type than a column, and 0.0 stands for -0.0 in a hash.
            same = key_class.type == canonical_type(dtype) or key_class.type == column.type
            is_bare = types.is_floating(dtype) and column.type is None
            if same and not is_bare:
                return key_class
        return None

    def _type_of(self, ref: ColumnRef) -> pa.DataType:
        return self.query.by_name[self.stream].type_of(ref)
