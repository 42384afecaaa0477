"""What an aggregate function consists of.

A function works on whole columns, in three steps, each for all groups at once:

1. *partial*: from the rows of a group to its state, a few columns with one row for each group;
2. *merge*: from the states of a group in several panes, partitions or epochs to one;
3. *finish*: from a state to the result.

States are what is shuffled and stored, so they are of Arrow's plain types, and a function whose state grows
with the rows says so.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import polars as pl
import pyarrow as pa

from midstream.query.aggregation import Parameter

Exprs = dict[str, pl.Expr]
"""Expressions for the columns of a state, by their names."""
State = Mapping[str, pl.Series]
"""The columns of a state."""


@dataclass(frozen=True, slots=True)
class Argument:
    """A parameter beside the column, such as the share of a percentile."""

    name: str
    least: float
    most: float
    default: Parameter | None = None
    """None if it must be given."""
    whole: bool = False


@dataclass(frozen=True, kw_only=True)
class Function:
    """An aggregate function."""

    accepts: Callable[[pa.DataType], bool]
    """Which types its column may have."""
    wants: str
    """The same in words."""
    result: Callable[[pa.DataType], pa.DataType]
    partial: Callable[[pl.Expr, pa.DataType], Exprs]
    """The state of rows, given their values and the type of the column."""
    merge: Callable[[Exprs, pa.DataType], Exprs]
    finish: Callable[[State, pa.DataType, tuple[Parameter, ...]], pl.Series]
    """The result, given the type of the column and the parameters; null where it does not fit its type."""
    prepare: Callable[[pa.ChunkedArray, tuple[Parameter, ...]], pa.ChunkedArray] = field(
        default=lambda column, _parameters: column
    )
    """What is computed of values before they are grouped."""
    arguments: tuple[Argument, ...] = ()
    may_overflow: bool = False
    """Whether a result may be null because it does not fit, which is an error."""
