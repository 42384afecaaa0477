"""The whole query as one frozen value, and the checks that it must pass before anything runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa

from midstream.errors import QueryError
from midstream.query.keys import KeyClass, key_classes
from midstream.query.predicate import Equality, Residual, compare_exactly, read_predicate
from midstream.query.select import Output, read_outputs
from midstream.query.stream import Stream
from midstream.query.window import Windows, close_windows
from midstream.values import Micros


@dataclass(frozen=True)
class Query:
    """Streams, what they are joined on, how far apart they may be, and what comes out."""

    streams: tuple[Stream, ...]
    equalities: tuple[Equality, ...]
    residuals: tuple[Residual, ...]
    windows: Windows
    outputs: tuple[Output, ...]
    classes: tuple[KeyClass, ...]
    zone: str
    """The time zone in which local times and literals without a zone are read."""

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The names of the streams, in the order in which they were given."""
        return tuple(stream.name for stream in self.streams)

    @cached_property
    def by_name(self) -> Mapping[str, Stream]:
        """The streams by their names."""
        return {stream.name: stream for stream in self.streams}

    @cached_property
    def output_schema(self) -> pa.Schema:
        """The columns of the results."""
        return pa.schema([(out.name, out.type) for out in self.outputs])

    def columns_of(self, stream: str) -> frozenset[str]:
        """The columns of a stream that the query uses at all: as time, key, output or in a condition."""
        refs = [self.by_name[stream].time, *(output.ref for output in self.outputs)]
        refs += [ref for key_class in self.classes for ref in key_class.members]
        refs += [ref for residual in self.residuals for ref in residual.columns]
        return frozenset(ref.path[0] for ref in refs if ref.stream == stream)

    def classes_of(self, streams: frozenset[str]) -> frozenset[int]:
        """The key classes in which at least one of the streams has a column."""
        return frozenset(c.id for c in self.classes if c.streams & streams)


def build_query(
    streams: Sequence[Stream],
    predicates: Sequence[str],
    *,
    everywhere: Micros | None = None,
    pairs: Mapping[tuple[str, str], Micros] | None = None,
    select: Sequence[str] = (),
    cross: bool = False,
    zone: str = "UTC",
) -> Query:
    """Check everything that was asked and make it one value; the first thing wrong is an error."""
    if len(streams) < 2:
        raise QueryError(
            "a join must have two or more streams",
            got=", ".join(s.name for s in streams) or "none",
            hint="add streams with .stream(name, df, time=...)",
        )
    equalities: list[Equality] = []
    residuals: list[Residual] = []
    for text in predicates:
        equal, rest = read_predicate(text, streams, zone)
        equalities += [e for e in equal if e not in equalities]
        residuals += [r for r in rest if r not in residuals]
    classes, coarse = key_classes(equalities, streams)
    residuals += [compare_exactly(e, streams, zone) for e in coarse]
    if not cross:
        _must_connect([s.name for s in streams], classes)
    return Query(
        streams=tuple(streams),
        equalities=tuple(equalities),
        residuals=tuple(residuals),
        windows=close_windows([s.name for s in streams], everywhere, dict(pairs or {})),
        outputs=read_outputs(select, streams),
        classes=classes,
        zone=zone,
    )


def _must_connect(names: Sequence[str], classes: Sequence[KeyClass]) -> None:
    reached = {names[0]}
    while True:
        more = {n for c in classes if c.streams & reached for n in c.streams} - reached
        if not more:
            break
        reached |= more
    apart = [name for name in names if name not in reached]
    if apart:
        raise QueryError(
            "every stream must be connected to the others by an equality",
            got=f"nothing between {', '.join(sorted(reached))} and {', '.join(apart)}",
            hint="add .on('a.x = b.y'), or ask for all combinations with .cross()",
        )
