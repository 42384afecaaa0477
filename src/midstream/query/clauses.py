"""Clauses of a query: equalities, residuals and outputs, as parsed values.

The parsers are in other modules, so that tasks, which only need the values, do not load sqlglot.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa

from midstream.query.expression import Expression, columns
from midstream.query.stream import ColumnRef


@dataclass(frozen=True, slots=True)
class Equality:
    """``left = right``, where the two are columns of different streams."""

    left: ColumnRef
    right: ColumnRef

    def __str__(self) -> str:
        return f"{self.left} = {self.right}"


@dataclass(frozen=True)
class Residual:
    """Any other condition over two or more streams; a row passes only if it is true, not if it is null."""

    text: str
    expression: Expression

    @cached_property
    def columns(self) -> tuple[ColumnRef, ...]:
        """The columns that the condition reads, each once."""
        return tuple(dict.fromkeys(columns(self.expression)))

    @cached_property
    def streams(self) -> frozenset[str]:
        """The streams whose rows must have met before the condition can be checked."""
        return frozenset(ref.stream for ref in self.columns)


@dataclass(frozen=True, slots=True)
class Output:
    """One column of the results."""

    name: str
    ref: ColumnRef
    type: pa.DataType
