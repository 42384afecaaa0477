"""Encoding: rows of a source, hashed by the key of the fragment they enter and split by engine partition.

Each target partition is sent a table of hashes, event times and payload columns. Rows with a null key can
never be part of a result: they are only counted. Rows without a time are sent, because the step sets them
aside together with late rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from midstream.engine.arrays import as_array, as_column, is_valid
from midstream.engine.error_context import error_context
from midstream.engine.hashing import Hashes, hash_key
from midstream.engine.micros import int64_micros
from midstream.engine.places import Places
from midstream.engine.routed_rows import RoutedRows, RowsKind
from midstream.engine.routing import Routing
from midstream.plan.layout import Layout, column_name, key_column
from midstream.plan.state_id import StateId
from midstream.query.network import Site
from midstream.query.query import Query
from midstream.query.stream import ColumnRef

BoolArray = npt.NDArray[np.bool_]

HASH = "#hash"
"""The column of hashes."""
ARRIVAL_EPOCH = "#epoch"
"""The column, of rows that a migration moves, with the epochs in which they arrived."""


def time_column(stream: str) -> str:
    """The column of a stream's event times, in microseconds, of rows that are sent."""
    return f"{stream}#time"


@dataclass(frozen=True)
class SourceColumn:
    """A column to be read from a source, the name that it gets, and the type that it is cast to."""

    name: str
    ref: ColumnRef
    type: pa.DataType | None
    """None if it is not cast."""


@dataclass(frozen=True)
class Destination:
    """A fragment input that rows are sent to."""

    state: StateId
    columns: tuple[str, ...]
    """The columns by which rows are hashed for it."""
    routing: Routing
    payload: tuple[str, ...]
    """The columns that are sent besides hash and time."""


@dataclass(frozen=True)
class Encoder:
    """Encodes the rows of one stream for a plan."""

    stream: str
    keys: tuple[tuple[str, ...], ...]
    """The stream's columns in each of its key classes; in one class, all must be equal."""
    destinations: tuple[Destination, ...]
    """There may be several during a migration, if the two plans need the rows by different keys."""
    source: tuple[SourceColumn, ...]
    site: Site | None = None
    """Where the stream lives, if it lives at a site."""

    def __call__(self, table: pa.Table) -> tuple[list[RoutedRows], int]:
        """Split source rows by target partition; also count those that are not sent: a key is null."""
        with error_context(streams=[self.stream]):
            time = table.column(time_column(self.stream))
            joins = self._can_join(table)
            is_sent = joins | ~is_valid(time)
            null_keys = table.num_rows - int(is_sent.sum())
            if null_keys:
                table, joins = table.filter(as_column(is_sent)), joins[is_sent]
            return list(self._split(table, joins)), null_keys

    def covers(self, other: Encoder) -> bool:
        """Whether rows that this one has sent can be sent on as another one of the stream would send them."""
        columns = {column.name: column for column in self.source}
        keys = {name for names in (*self.keys, *other.keys) for name in names}
        own = {columns[name] for name in keys if name in columns}
        theirs = {column for column in other.source if column.name in keys}
        same_time = self.source[0] == other.source[0]
        return same_time and own == theirs and not self._missing_columns(other)

    def lacking(self, other: Encoder) -> list[str]:
        """The columns, as users call them, that another encoder of the stream sends and this one does not."""
        missing = self._missing_columns(other)
        return sorted({str(column.ref) for column in other.source if column.name in missing})

    def _missing_columns(self, other: Encoder) -> set[str]:
        wanted = {name for to in other.destinations for name in to.payload}
        return wanted.difference(self.destinations[0].payload)

    def reencode(self, table: pa.Table, sent_to: Destination) -> Iterator[RoutedRows]:
        """Split rows that another encoder has sent to a destination, by the fragment inputs of this plan."""
        with error_context(streams=[self.stream]):
            joins = np.ones(table.num_rows, np.bool_)
            # Keys that are not compared are not sent: the hash says all of them.
            others = [to for to in self.destinations if to.columns != sent_to.columns]
            for name in {name for to in others for name in to.columns}:
                joins &= is_valid(table.column(name))
            hashes = as_array(table.column(HASH)).view(np.uint64)
            yield from self._split(table, joins, {sent_to.columns: hashes})

    def empty(self, table: pa.Table) -> RoutedRows:
        """A table without rows, to be sent if there are none: the count of null keys travels with it."""
        to = self.destinations[0]
        no_rows = self._columns_to_send(table.slice(0, 0), np.zeros(0, np.uint64), to)
        return RoutedRows(to.routing.partitions[0], to.state, "arriving", no_rows)

    def _split(
        self, table: pa.Table, joins: BoolArray, known: Mapping[tuple[str, ...], Hashes] | None = None
    ) -> Iterator[RoutedRows]:
        """Rows by target; ``known`` are hashes by the columns that they are of."""
        for to in self.destinations:
            hashes = None if known is None else known.get(to.columns)
            if hashes is None:
                with error_context(columns=self._shown(to.columns)):
                    hashes = _hash(table, joins, to.columns)
            sent = self._columns_to_send(table, hashes, to)
            for part in to.routing.split(sent, hashes, (self.stream,)):
                kind: RowsKind = "copied" if part.is_copy else "arriving"
                yield RoutedRows(part.partition, to.state, kind, part.table)

    def _columns_to_send(self, table: pa.Table, hashes: Hashes, to: Destination) -> pa.Table:
        sent = table.select([time_column(self.stream), *to.payload])
        return sent.add_column(0, HASH, as_column(hashes))

    def _can_join(self, table: pa.Table) -> BoolArray:
        """Which rows have a key, and the same value in all columns of a class."""
        joins = np.ones(table.num_rows, np.bool_)
        for first, *others in self.keys:
            with error_context(columns=self._shown((first, *others))):
                joins &= is_valid(table.column(first))
                for other in others:
                    # Polars compares NaN and -0.0 as Spark does.
                    equal = pl.from_arrow(table.column(first)) == pl.from_arrow(table.column(other))
                    joins &= pl.Series(equal).fill_null(value=False).to_numpy()
        return joins

    def _shown(self, names: tuple[str, ...]) -> list[ColumnRef]:
        """Columns as the user names them."""
        return [column.ref for column in self.source if column.name in names]


def _hash(table: pa.Table, joins: BoolArray, columns: tuple[str, ...]) -> Hashes:
    """The hashes of rows; 0 for those that join nothing and are sent only to be set aside."""
    if joins.all():
        return hash_key([table.column(name) for name in columns], table.num_rows)
    hashes = np.zeros(table.num_rows, np.uint64)
    joining = table.filter(as_column(joins))
    hashes[joins] = hash_key([joining.column(name) for name in columns], joining.num_rows)
    return hashes


def project(table: pa.Table, column: SourceColumn, stream: str) -> pa.ChunkedArray:
    """A column of a source as encoders take it, for shells that do not let Spark project columns.

    A time, or a date to be cast to a timestamp, that does not fit into 64 bits of microseconds becomes null.
    """
    with error_context(streams=[stream], columns=[column.ref]):
        values = table.column(column.ref.path[0])
        for field in column.ref.path[1:]:
            # By number: Arrow would take a name with dots for a path.
            values = pc.struct_field(values, [values.type.get_field_index(field)])
        if column.name == time_column(stream):
            return int64_micros(values)
        return cast_key(values, column.type)


def cast_key(values: pa.ChunkedArray, dtype: pa.DataType | None) -> pa.ChunkedArray:
    """A column in the type of its key class, or as it is if it is no key."""
    if dtype is None:
        return values
    if pa.types.is_timestamp(dtype):
        return int64_micros(values).cast(dtype)
    # Spark's cast to double rounds values that a double cannot represent; Arrow's safe cast refuses them.
    return values.cast(dtype, safe=not pa.types.is_floating(dtype))


def make_encoder(query: Query, layout: Layout, stream: str, places: Places, *, whole_rows: bool) -> Encoder:
    """The encoder of a stream in a plan; with ``whole_rows`` it sends every column, for the late table."""
    fragments = {s: f for s, f in layout.fragment_of_input.items() if s.streams == (stream,)}
    stored_columns = next(f.inputs_by_id[s].columns for s, f in fragments.items())
    spec = query.by_name[stream]
    source = [SourceColumn(time_column(stream), spec.time, None)]
    keys: dict[int, tuple[str, ...]] = {}
    for key_class in query.classes:
        members = key_class.of(stream)
        first = key_column(stream, key_class.id)
        names = tuple(first if i == 0 else f"{first}+{i}" for i in range(len(members)))
        source += [SourceColumn(n, r, key_class.type) for n, r in zip(names, members, strict=True)]
        if names:
            keys[key_class.id] = names
    refs = {column_name(r): r for r in _user_columns(query, stream)}
    all_columns = [ColumnRef(stream, (name,)) for name in spec.schema.names] if whole_rows else []
    refs |= {column_name(ref): ref for ref in all_columns}
    sent_columns = [name for name in refs if name in stored_columns or refs[name] in all_columns]
    source += [SourceColumn(name, refs[name], None) for name in sent_columns]
    return Encoder(
        stream=stream,
        keys=tuple(keys.values()),
        destinations=tuple(
            Destination(
                s,
                tuple(keys[c][0] for c in f.key),
                places.routing(f.key, f.site),
                # Rows that are set aside are kept where they are counted.
                stored_columns
                if f.site and s not in f.counted_inputs
                else tuple(dict.fromkeys([*stored_columns, *sent_columns])),
            )
            # First where the rows are counted: there they have all columns.
            for s, f in sorted(
                fragments.items(), key=lambda item: (item[0] not in item[1].counted_inputs, item[0])
            )
        ),
        source=tuple(source),
        site=None if query.topology is None else query.topology.site_of[stream],
    )


def make_encoders(query: Query, layout: Layout, places: Places, *, whole_rows: bool) -> dict[str, Encoder]:
    """The encoders of all streams in a plan."""
    return {name: make_encoder(query, layout, name, places, whole_rows=whole_rows) for name in query.names}


def _user_columns(query: Query, stream: str) -> list[ColumnRef]:
    """The columns of a stream that states keep for outputs, and that residuals use."""
    refs = [output.ref for output in query.kept]
    refs += [ref for residual in query.residuals for ref in residual.columns]
    return [ref for ref in dict.fromkeys(refs) if ref.stream == stream]
