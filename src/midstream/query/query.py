"""The whole query as one frozen value."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from math import inf

import pyarrow as pa

from midstream.query.aggregation import Aggregation, AggregationWindows
from midstream.query.clauses import Equality, Output, Residual
from midstream.query.keys import KeyClass
from midstream.query.stream import Stream
from midstream.query.topology import Topology
from midstream.query.window import Windows


@dataclass(frozen=True)
class Query:
    """Streams, the predicates that join them, their windows, and the outputs."""

    streams: tuple[Stream, ...]
    equalities: tuple[Equality, ...]
    residuals: tuple[Residual, ...]
    windows: Windows
    outputs: tuple[Output, ...]
    classes: tuple[KeyClass, ...]
    zone: str
    """The time zone of local times, and of literals without a zone."""
    kept: tuple[Output, ...]
    """The columns that states keep for outputs: those that were selected when the query began."""
    aggregation: Aggregation | None = None
    """What is computed of the results; None if they leave as they are. The outputs are what it needs."""
    topology: Topology | None = None
    """Where the streams live, if they live at sites."""

    def __hash__(self) -> int:
        """Of what tells queries apart as a rule: layouts are looked up by it, and types take long to hash."""
        return hash((self.names, self.equalities, self.windows))

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The names of the streams, in the order in which they were given."""
        return tuple(stream.name for stream in self.streams)

    @cached_property
    def by_name(self) -> Mapping[str, Stream]:
        """The streams by their names."""
        return {stream.name: stream for stream in self.streams}

    @cached_property
    def joined_schema(self) -> pa.Schema:
        """The columns of results of the join."""
        return schema_of(self.outputs)

    @cached_property
    def output_schema(self) -> pa.Schema:
        """The columns of what comes out: results, or aggregates of them."""
        return self.joined_schema if self.aggregation is None else self.aggregation.schema

    @property
    def event_windows(self) -> AggregationWindows | None:
        """The windows of its aggregates, if it has any."""
        return None if self.aggregation is None else self.aggregation.windows

    def select_outputs(self, kept: pa.Table) -> pa.Table:
        """The outputs of results that have the kept columns, which for aggregates are the same."""
        if self.aggregation is not None:
            return kept
        names = {output.ref: output.name for output in self.kept}
        columns = [kept.column(names[output.ref]) for output in self.outputs]
        return pa.table(columns, schema=self.joined_schema)

    @cached_property
    def longest_window(self) -> float:
        """The longest window of two streams in microseconds; infinite if some are joined without one."""
        widths = [self.windows.width(a, b) for a, b in combinations(self.names, 2)]
        return max(inf if width is None else width for width in widths)

    def columns_of(self, stream: str) -> frozenset[str]:
        """The columns of a stream that the query uses: as time or key, for outputs, or in a residual."""
        refs = [self.by_name[stream].time, *(output.ref for output in self.kept)]
        refs += [ref for key_class in self.classes for ref in key_class.members]
        refs += [ref for residual in self.residuals for ref in residual.columns]
        return frozenset(ref.path[0] for ref in refs if ref.stream == stream)

    def classes_of(self, streams: frozenset[str]) -> frozenset[int]:
        """The key classes in which at least one of the streams has a column."""
        return frozenset(
            number for number, of_class in self._streams_of_classes if not of_class.isdisjoint(streams)
        )

    @cached_property
    def _streams_of_classes(self) -> tuple[tuple[int, frozenset[str]], ...]:
        """Asked for by every node of every plan that is compared."""
        return tuple((key_class.id, key_class.streams) for key_class in self.classes)


def schema_of(outputs: Iterable[Output]) -> pa.Schema:
    """The columns of a table of outputs."""
    return pa.schema([(output.name, output.type) for output in outputs])
