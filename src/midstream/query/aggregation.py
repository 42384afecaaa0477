"""Aggregation: what is computed over windows of a join's results, as a checked value.

``aggregate/read_aggregation.py`` reads it from text; here are only the values, which tasks need.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import gcd

import pyarrow as pa

from midstream.query.clauses import Output
from midstream.query.stream import ColumnRef
from midstream.query.types import show_type
from midstream.values import Micros

Parameter = int | float
"""What a function is given besides its column, such as the 0.9 of ``percentile(x, 0.9)``."""


@dataclass(frozen=True, slots=True)
class AggregationWindows:
    """Aggregation windows: one begins every ``slide``, counted from 1970 plus ``start``."""

    length: Micros
    slide: Micros
    start: Micros
    stream: str | None
    """The stream whose event time is that of a result; None for the time of its latest component."""
    type: pa.DataType
    """The type of their beginnings and ends."""

    @property
    def pane(self) -> Micros:
        """The length of a pane: rows of a pane are in the same windows."""
        return Micros(gcd(self.length, self.slide))

    def first_end_after(self, time: int) -> int:
        """The end of the first window that ends after a time."""
        offset = self.start + self.length
        return time + self.slide - (time - offset) % self.slide

    def oldest_pane(self, until: int) -> int:
        """The beginning of the oldest pane that is needed once all windows that end until then are out."""
        return self.first_end_after(until) - self.length


@dataclass(frozen=True, slots=True)
class Aggregate:
    """One aggregate: a function of a column, and the name and the type of what it gives."""

    name: str
    function: str
    columns: tuple[Output, ...]
    """Of what, as results of the join have them: Midstream's own functions of one, ``count(*)`` of none."""
    parameters: tuple[Parameter, ...]
    type: pa.DataType
    user_class: type | None = None
    """The class of a user-defined function; None for one of Midstream's own."""

    @property
    def column(self) -> Output | None:
        """The column of one of Midstream's own functions; None for ``count(*)``."""
        return self.columns[0] if self.columns else None

    @property
    def input_type(self) -> pa.DataType:
        """The type of its column."""
        return pa.null() if self.column is None else self.column.type

    @property
    def text(self) -> str:
        """What is computed, as a definition has it. Of what users define that is the name, not the code."""
        of = ", ".join(str(column.ref) for column in self.columns) or "*"
        text = f"{self.function}({', '.join([of, *map(str, self.parameters)])})"
        return text if self.user_class is None else f"{text}: {show_type(self.type)}"


@dataclass(frozen=True)
class Aggregation:
    """Aggregates over groups of a join's results: by some of their columns, and by window."""

    keys: tuple[Output, ...]
    """The columns that results are grouped by, with their names in what comes out."""
    windows: AggregationWindows
    window_position: int
    """Before which of the keys the window is."""
    aggregates: tuple[Aggregate, ...]
    is_update_mode: bool = False
    """Whether a group comes out whenever it changes; in append mode it does once, when it is complete."""

    @cached_property
    def columns(self) -> tuple[Output, ...]:
        """The columns of the join's results that are needed, each once, with their names there."""
        used = [*self.keys, *(column for each in self.aggregates for column in each.columns)]
        return tuple(
            {output.ref: Output(column_of(output.ref), output.ref, output.type) for output in used}.values()
        )

    @cached_property
    def schema(self) -> pa.Schema:
        """The columns of what comes out."""
        kind = self.windows.type
        fields = [(key.name, key.type) for key in self.keys]
        fields.insert(self.window_position, ("window", pa.struct([("start", kind), ("end", kind)])))
        return pa.schema([*fields, *((each.name, each.type) for each in self.aggregates)])

    @property
    def description(self) -> dict[str, object]:
        """What a restart must agree with, as plain values."""
        windows = self.windows
        return {
            "mode": "update" if self.is_update_mode else "append",
            "by": [f"{key.ref} AS {key.name}" for key in self.keys],
            "window": {
                "length": windows.length,
                "slide": windows.slide,
                "start": windows.start,
                "time": windows.stream,
                "position": self.window_position,
            },
            "aggregates": [f"{each.text} AS {each.name}" for each in self.aggregates],
        }


def column_of(ref: ColumnRef) -> str:
    """The name of a column among the results of a join that are aggregated."""
    return str(ref)
