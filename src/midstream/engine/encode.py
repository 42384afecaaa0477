"""Encoding: rows of a source, hashed by the key of the fragment they enter and split by engine partition.

What travels is a table per target partition: the hash, the event time, and the payload columns. Rows that
can never be part of a result, because a key is null, stay behind and are counted. Rows without a time do
travel: only the step knows what is late, and they belong there.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from midstream.engine.arrays import as_array, as_column
from midstream.engine.error_context import error_context
from midstream.engine.hashing import Hashes, hash_key
from midstream.engine.micros import fitting_micros
from midstream.engine.routed_rows import RoutedRows
from midstream.engine.routing import Routing, split
from midstream.plan.layout import Layout, column_name, key_column
from midstream.plan.state_id import StateId
from midstream.query.query import Query
from midstream.query.stream import ColumnRef

BoolArray = npt.NDArray[np.bool_]

HASH = "#hash"
ARRIVED = "#epoch"
"""The columns of hashes, and of the epochs in which rows arrived that are moved to another place."""


def time_column(stream: str) -> str:
    """The column that holds a stream's event times, in microseconds, on the way to the step."""
    return f"{stream}#time"


@dataclass(frozen=True)
class SourceColumn:
    """A column that the shell must read from a source: what, under which name, cast to which type."""

    name: str
    ref: ColumnRef
    type: pa.DataType | None
    """The type to cast to; None to leave it as it is."""


@dataclass(frozen=True)
class Encoder:
    """How the rows of one stream enter a plan."""

    stream: str
    keys: tuple[tuple[str, ...], ...]
    """For every key class of the stream, its columns; those of one class must be equal."""
    destinations: tuple[tuple[StateId, tuple[str, ...]], ...]
    """The fragment inputs that rows are sent to, and the columns that decide in which engine partition. Two
    plans of a migration may need them by different keys."""
    payload: tuple[str, ...]
    """The columns that travel besides hash and time."""
    source: tuple[SourceColumn, ...]
    routing: Routing

    def __call__(self, table: pa.Table) -> tuple[list[RoutedRows], int]:
        """Split source rows by target partition; also the number of rows that a null key left behind."""
        with error_context(streams=[self.stream]):
            time = table.column(time_column(self.stream))
            joins = self._can_join(table)
            travels = joins | as_array(time.is_null())
            left_behind = table.num_rows - int(travels.sum())
            if left_behind:
                table, joins = table.filter(as_column(travels)), joins[travels]
            return list(self._split(table, joins)), left_behind

    def reencode(self, table: pa.Table) -> Iterator[RoutedRows]:
        """Rows that an encoder of another plan has sent, to the fragment inputs of this one."""
        with error_context(streams=[self.stream]):
            joins = np.ones(table.num_rows, np.bool_)
            for name in {name for _, hashed in self.destinations for name in hashed}:
                joins &= as_array(table.column(name).is_valid())
            yield from self._split(table, joins)

    def empty(self, table: pa.Table) -> RoutedRows:
        """What would travel of no rows; it still carries the count of those left behind."""
        none = self._send(table.slice(0, 0), np.zeros(0, np.uint64))
        return RoutedRows(0, self.destinations[0][0], "arriving", none)

    def _split(self, table: pa.Table, joins: BoolArray) -> Iterator[RoutedRows]:
        for state, hashed in self.destinations:
            with error_context(columns=self._shown(hashed)):
                hashes = _hash(table, joins, hashed)
            for target, part in split(self._send(table, hashes), self.routing.targets(hashes)):
                yield RoutedRows(target, state, "arriving", part)

    def _send(self, table: pa.Table, hashes: Hashes) -> pa.Table:
        sent = table.select([time_column(self.stream), *self.payload])
        return sent.add_column(0, HASH, as_column(hashes))

    def _can_join(self, table: pa.Table) -> BoolArray:
        can = np.ones(table.num_rows, np.bool_)
        for first, *others in self.keys:
            with error_context(columns=self._shown((first, *others))):
                can &= as_array(table.column(first).is_valid())
                for other in others:
                    # Polars compares NaN and -0.0 as Spark does.
                    same = pl.from_arrow(table.column(first)) == pl.from_arrow(table.column(other))
                    can &= pl.Series(same).fill_null(value=False).to_numpy()
        return can

    def _shown(self, names: tuple[str, ...]) -> list[ColumnRef]:
        """Columns as the user knows them."""
        return [column.ref for column in self.source if column.name in names]


def _hash(table: pa.Table, joins: BoolArray, columns: tuple[str, ...]) -> Hashes:
    """The hashes of rows; those that join nothing, and travel only to be counted, have none."""
    if joins.all():
        return hash_key([table.column(name) for name in columns], table.num_rows)
    hashes = np.zeros(table.num_rows, np.uint64)
    chosen = table.filter(as_column(joins))
    hashes[joins] = hash_key([chosen.column(name) for name in columns], chosen.num_rows)
    return hashes


def project(table: pa.Table, column: SourceColumn, stream: str) -> pa.ChunkedArray:
    """A column of a source as the encoder takes it, where the shell is not Spark's own projection.

    A time that 64 bits of microseconds do not hold is none, and a date that no timestamp holds is no key.
    """
    with error_context(streams=[stream], columns=[column.ref]):
        values = table.column(column.ref.path[0])
        for step in column.ref.path[1:]:
            # By number: Arrow would take a name with dots for a path.
            values = pc.struct_field(values, [values.type.get_field_index(step)])
        if column.name == time_column(stream):
            return fitting_micros(values)
        if column.type is None:
            return values
        if pa.types.is_timestamp(column.type):
            return fitting_micros(values).cast(column.type)
        # Spark's cast to double rounds what a double cannot hold; Arrow's would refuse it.
        return values.cast(column.type, safe=not pa.types.is_floating(column.type))


def make_encoder(query: Query, layout: Layout, stream: str, routing: Routing, *, whole_rows: bool) -> Encoder:
    """The encoder of a stream in a plan; with ``whole_rows`` every column travels, for the late table."""
    fragments = {s: f for s, f in layout.fragment_of_input.items() if s.streams == (stream,)}
    stored = next(f.inputs_by_id[s].columns for s, f in fragments.items())
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
    whole = [ColumnRef(stream, (name,)) for name in spec.schema.names] if whole_rows else []
    refs |= {column_name(ref): ref for ref in whole}
    wanted = [name for name in refs if name in stored or refs[name] in whole]
    source += [SourceColumn(name, refs[name], None) for name in wanted]
    return Encoder(
        stream=stream,
        keys=tuple(keys.values()),
        destinations=tuple((s, tuple(keys[c][0] for c in f.key)) for s, f in sorted(fragments.items())),
        payload=tuple(dict.fromkeys([*stored, *wanted])),
        source=tuple(source),
        routing=routing,
    )


def make_encoders(query: Query, layout: Layout, routing: Routing, *, whole_rows: bool) -> dict[str, Encoder]:
    """The encoders of all streams in a plan."""
    return {name: make_encoder(query, layout, name, routing, whole_rows=whole_rows) for name in query.names}


def _user_columns(query: Query, stream: str) -> list[ColumnRef]:
    refs = [output.ref for output in query.outputs]
    refs += [ref for residual in query.residuals for ref in residual.columns]
    return [ref for ref in dict.fromkeys(refs) if ref.stream == stream]
