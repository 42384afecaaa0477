"""Partial aggregates: a table with a row for each pane and group, which can be merged with others.

A pane is a piece of event time so short that its rows are in the same windows: its length divides that of the
windows and their distance. So a row is aggregated once, however many windows overlap it.

Columns: the hash of the group, which says where it is merged; the pane; the columns of the group; and the
states of the aggregates. Once merged, rows are in the order of their panes, so those of a window are
together, and within a pane in that of the hashes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from functools import lru_cache

import numpy as np
import polars as pl
import pyarrow as pa
from pyarrow import types

from midstream.aggregate.functions import FUNCTIONS, with_one_zero
from midstream.aggregate.user_states import Groups, added_states, merged_states
from midstream.engine.arrays import as_array, as_column
from midstream.engine.error_context import error_context
from midstream.engine.hashing import Hashes, hash_key, hash_values
from midstream.engine.results import TIME
from midstream.query.aggregation import Aggregate, Aggregation, column_of
from midstream.query.types import canonical_type

HASH = "#hash"
PANE = "#pane"
WINDOW_END = "#end"
"""In place of the pane, once panes are merged to windows."""
_ROW = "#row"
USER_STATE = "state"
"""The only part of the state of a user-defined aggregate."""
_EXPRESSIONS_KEPT = 64
"""Of how many aggregations."""
_NULL = np.uint64(0x6E756C6C)
"""What stands for the hash of a null."""


def partial_aggregates(aggregation: Aggregation, results: pa.Table) -> pl.DataFrame:
    """The partial aggregates of results of the join, which have their times, in no particular order."""
    windows = aggregation.windows
    times = as_array(results.column(TIME))
    columns = {PANE: pl.Series(times - (times - windows.start) % windows.pane), TIME: pl.Series(times)}
    for name, key in zip(key_names(aggregation), aggregation.keys, strict=True):
        columns[name] = _as_group(results.column(column_of(key.ref)))
    for name, aggregate in _built_in(aggregation):
        with in_context(aggregate):
            if aggregate.column is not None:
                prepare = FUNCTIONS[aggregate.function].prepare
                values = prepare(results.column(aggregate.column.name), aggregate.parameters)
                columns[name] = pl.Series(pl.from_arrow(values))

    def added(_name: str, aggregate: Aggregate, groups: Groups) -> pl.Series:
        return added_states(aggregate, results, groups)

    grouped = _group(
        aggregation, pl.DataFrame(columns), [PANE, *key_names(aggregation)], _partial(aggregation), added
    )
    hashes = group_hashes([grouped[name].to_arrow() for name in key_names(aggregation)], len(grouped))
    return grouped.insert_column(0, pl.Series(HASH, hashes))


def merge_partials(aggregation: Aggregation, tables: Sequence[pl.DataFrame], by: str = PANE) -> pl.DataFrame:
    """Several tables of partial aggregates as one; ``by`` is the column of panes, or of windows."""
    rows = pl.concat(tables) if len(tables) > 1 else tables[0]
    merged = _merge(aggregation, tuple(rows.columns))

    def states_merged(name: str, aggregate: Aggregate, groups: Groups) -> pl.Series:
        return merged_states(aggregate, rows[state_column(name)], groups)

    grouped = _group(aggregation, rows, [HASH, by, *key_names(aggregation)], merged, states_merged)
    return in_order(grouped, by)


def in_order(partials: pl.DataFrame, by: str = PANE) -> pl.DataFrame:
    """Partial aggregates in the order of panes, or of windows, and of hashes."""
    return partials.sort(by, HASH, maintain_order=True)


def key_names(aggregation: Aggregation) -> list[str]:
    """The columns of partial aggregates that have the keys of groups."""
    return [f"key {position}" for position in range(len(aggregation.keys))]


def keys_of(aggregation: Aggregation, grouped: pl.DataFrame) -> pl.DataFrame:
    """The keys of groups, with the names that users know."""
    names = {name: key.name for name, key in zip(key_names(aggregation), aggregation.keys, strict=True)}
    return grouped.select(list(names)).rename(names)


def states(
    aggregation: Aggregation, merged: pl.DataFrame
) -> Iterator[tuple[Aggregate, dict[str, pl.Series]]]:
    """The aggregates, each with the columns of its state."""
    for name, aggregate in _named(aggregation):
        yield aggregate, {part: merged[f"{name} {part}"] for part in _parts(name, merged.columns)}


def state_column(name: str) -> str:
    """The column that has the states of a user-defined aggregate."""
    return f"{name} {USER_STATE}"


def in_context(aggregate: Aggregate) -> AbstractContextManager[None]:
    """Errors within name the aggregate."""
    return error_context(f"the aggregate {aggregate.name}")


def group_hashes(keys: Sequence[pa.Array], rows: int) -> Hashes:
    """The hashes of groups, by which they are placed; a null is a value like any other."""
    return hash_key([as_column(_hash_with_nulls(key).view(np.int64)) for key in keys], rows)


def _hash_with_nulls(key: pa.Array) -> Hashes:
    hashes = np.full(len(key), _NULL)
    hashes[as_array(key.is_valid())] = hash_values(key.drop_null().cast(canonical_type(key.type)))
    return hashes


def _as_group(column: pa.ChunkedArray) -> pl.Series:
    """The values of a key as groups have them: as in Spark, -0.0 becomes 0.0."""
    values = pl.Series(pl.from_arrow(column))
    if not types.is_floating(column.type):
        return values
    return values.to_frame("key").select(with_one_zero(pl.col("key")).cast(values.dtype)).to_series()


def _named(aggregation: Aggregation) -> Iterator[tuple[str, Aggregate]]:
    return ((str(position), aggregate) for position, aggregate in enumerate(aggregation.aggregates))


def _parts(name: str, columns: Sequence[str]) -> list[str]:
    return [column.removeprefix(f"{name} ") for column in columns if column.startswith(f"{name} ")]


# Expressions are made once: with few rows, making them takes as long as computing them.
@lru_cache(_EXPRESSIONS_KEPT)
def _partial(aggregation: Aggregation) -> tuple[pl.Expr, ...]:
    """The states of aggregates of rows, by the names that their columns get."""
    states: list[pl.Expr] = []
    for name, aggregate in _built_in(aggregation):
        parts = {"count": pl.len().cast(pl.Int64)}
        if aggregate.column is not None:
            parts = FUNCTIONS[aggregate.function].partial(pl.col(name), aggregate.column.type)
        states += [expression.alias(f"{name} {part}") for part, expression in parts.items()]
    return tuple(states)


@lru_cache(_EXPRESSIONS_KEPT)
def _merge(aggregation: Aggregation, columns: tuple[str, ...]) -> tuple[pl.Expr, ...]:
    """The states of aggregates that are in columns of these names, merged."""
    states: list[pl.Expr] = []
    for name, aggregate in _built_in(aggregation):
        state = {part: pl.col(f"{name} {part}") for part in _parts(name, columns)}
        merged = FUNCTIONS[aggregate.function].merge(state, aggregate.input_type)
        states += [expression.alias(f"{name} {part}") for part, expression in merged.items()]
    return tuple(states)


def _built_in(aggregation: Aggregation) -> Iterator[tuple[str, Aggregate]]:
    return (each for each in _named(aggregation) if each[1].user_class is None)


def _user_defined(aggregation: Aggregation) -> Iterator[tuple[str, Aggregate]]:
    return (each for each in _named(aggregation) if each[1].user_class is not None)


def _group(
    aggregation: Aggregation,
    rows: pl.DataFrame,
    by: Sequence[str],
    parts: Sequence[pl.Expr],
    user_state: Callable[[str, Aggregate, Groups], pl.Series],
) -> pl.DataFrame:
    """A row for each group, with states of aggregates: by expressions, or by calls of users' classes."""
    user_defined = list(_user_defined(aggregation))
    if user_defined:
        rows, parts = rows.with_row_index(_ROW), [*parts, pl.col(_ROW)]
    # All aggregates are made at once: an error can only name all of them.
    names = ", ".join(aggregate.name for aggregate in aggregation.aggregates)
    with error_context(f"the aggregates {names}"):
        # In the order of their first rows: an epoch that runs again gives the same, bit by bit.
        grouped = rows.group_by(by, maintain_order=True).agg(parts)
    if not user_defined:
        return grouped
    groups = Groups(grouped[_ROW], keys_of(aggregation, grouped))
    made = [user_state(name, each, groups).alias(state_column(name)) for name, each in user_defined]
    return grouped.drop(_ROW).with_columns(made)
