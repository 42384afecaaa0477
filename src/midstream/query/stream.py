"""Streams and references to their columns.

A reference may be to a field of a struct (``orders.user.id``). Names resolve as in Spark: exactly, or else
without regard to case if only one name matches.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

import pyarrow as pa

from midstream.errors import QueryError, show_value
from midstream.query.types import show_type
from midstream.values import Micros

_NAME = re.compile(r"[A-Za-z_]\w*\Z")


@dataclass(frozen=True, slots=True, order=True)
class ColumnRef:
    """A column of a stream, or a field inside one."""

    stream: str
    path: tuple[str, ...]

    def __str__(self) -> str:
        return _dotted((self.stream, *self.path))


@dataclass(frozen=True, slots=True)
class Stream:
    """A source of rows: its name, its columns, which of them is the event time, and how late rows may be."""

    name: str
    schema: pa.Schema
    time: ColumnRef
    lateness: Micros

    def type_of(self, ref: ColumnRef) -> pa.DataType:
        """Arrow type of a column that :func:`resolve` found."""
        dtype: pa.DataType = self.schema.field(ref.path[0]).type
        for field in ref.path[1:]:
            dtype = dtype.field(field).type
        return dtype


@lru_cache(maxsize=4096)
def _dotted(parts: tuple[str, ...]) -> str:
    """A dotted name; parts that are no words are in back-quotes."""
    return ".".join(p if _NAME.match(p) else "`" + p.replace("`", "``") + "`" for p in parts)


def check_name(name: str, taken: Iterable[str]) -> str:
    """The name, if it can be the name of one more stream."""
    if not isinstance(name, str) or not _NAME.match(name):
        raise QueryError(
            "the name of a stream must be a word of letters, digits and underscores",
            got=show_value(name),
            hint="begin with a letter from a to z, or an underscore",
        )
    if name.lower() in (other.lower() for other in taken):
        raise QueryError(
            "every stream must have a name of its own",
            got=repr(name),
            hint="a DataFrame may be joined with itself under two names",
        )
    return name


def resolve(streams: Iterable[Stream], parts: tuple[str, ...]) -> ColumnRef:
    """Find the column that the dotted ``parts`` name; the first part is the stream."""
    by_name = {stream.name: stream for stream in streams}
    text = _dotted(parts)
    if len(parts) < 2:
        raise QueryError(
            "a column must be named with its stream",
            got=repr(text),
            hint=f"write stream.{text}; the streams are {', '.join(by_name)}",
        )
    name = _match(parts[0], list(by_name))
    if name is None:
        raise QueryError(
            "a column must belong to one of the streams",
            got=repr(text),
            hint=f"the streams are {', '.join(by_name)}",
        )
    return resolve_path(by_name[name].name, by_name[name].schema, parts[1:])


def resolve_path(stream: str, schema: pa.Schema, parts: tuple[str, ...]) -> ColumnRef:
    """Find the column or nested field ``parts`` in the schema of a stream."""
    path: list[str] = []
    shown = "struct"
    fields = [schema.field(i) for i in range(len(schema))]
    for depth, part in enumerate(parts):
        match = _match(part, [field.name for field in fields])
        if match is None:
            where = _dotted((stream, *path))
            names = ", ".join(field.name for field in fields)
            raise QueryError(
                f"{'a field' if depth else 'a column'} must exist",
                got=f"{part!r} in {where}",
                hint=f"{where} has {names}" if names else f"{where} is of type {shown}, and has no fields",
            )
        path.append(match)
        dtype = next(field for field in fields if field.name == match).type
        shown = show_type(dtype)
        fields = [dtype.field(i) for i in range(dtype.num_fields)] if pa.types.is_struct(dtype) else []
    return ColumnRef(stream, tuple(path))


def _match(name: str, candidates: list[str]) -> str | None:
    if name in candidates:
        return name
    matches = [candidate for candidate in candidates if candidate.lower() == name.lower()]
    return matches[0] if len(matches) == 1 else None
