"""States of user-defined aggregates: one call of the user's class for each group, and bytes in between.

A state is what the class itself has dumped, bytes or a table of Arrow's, with one byte after it that says
which. Nothing of the user's is pickled into the state of a query.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import polars as pl
import pyarrow as pa

from midstream.engine.arrays import as_array, as_column
from midstream.errors import AggregateError, MidstreamError
from midstream.query.aggregation import Aggregate
from midstream.query.types import show_type

_BYTES, _ARROW = b"\0", b"\1"
_GO_ON = "repair the class and start the query again: it goes on after its last committed epoch"
T = TypeVar("T")


@dataclass(frozen=True)
class Groups:
    """The groups of some rows."""

    rows: pl.Series
    """For each group the positions of its rows."""
    keys: pl.DataFrame
    """The values that they have in common, with the names that users know."""

    def __iter__(self) -> Iterator[tuple[int, int, int]]:
        """The number of each group, and where its rows begin and end if they are put in order."""
        counts = self.rows.list.len().to_numpy().astype(np.int64)
        ends = np.cumsum(counts)
        return zip(range(len(counts)), (ends - counts).tolist(), ends.tolist(), strict=True)

    def in_order(self) -> pa.Array:
        """The positions of the rows, those of a group together."""
        return as_column(as_array(self.rows.list.explode(empty_as_null=False).to_arrow()))

    def name(self, number: int) -> str:
        """A group, as an error shows it."""
        values = self.keys.row(number, named=True)
        return ", ".join(f"{name} {value!r}" for name, value in values.items()) or "all results"


def added_states(aggregate: Aggregate, rows: pa.Table, groups: Groups) -> pl.Series:
    """The states of groups, from the rows of each."""
    names = ["_".join((column.ref.stream, *column.ref.path)) for column in aggregate.columns]
    columns = [rows.column(column.name).take(groups.in_order()) for column in aggregate.columns]
    (batch,) = pa.table(columns, names=names).combine_chunks().to_batches()

    def add(_number: int, begin: int, end: int) -> bytes:
        state = _class_of(aggregate)()
        state.add(batch.slice(begin, end - begin))
        return _dumped(state)

    return pl.Series(_for_each(aggregate, "add", groups, add), dtype=pl.Binary)


def merged_states(aggregate: Aggregate, states: pl.Series, groups: Groups) -> pl.Series:
    """The states of groups, each from one or several states."""
    ordered = states.gather(pl.Series(groups.in_order())).to_list()

    def merge(_number: int, begin: int, end: int) -> bytes:
        dumped: bytes = ordered[begin]
        if end == begin + 1:
            return dumped
        state = _loaded(aggregate, dumped)
        for other in ordered[begin + 1 : end]:
            state.merge(_loaded(aggregate, other))
        return _dumped(state)

    return pl.Series(_for_each(aggregate, "merge", groups, merge), dtype=pl.Binary)


def results_of(aggregate: Aggregate, states: Sequence[bytes], keys: pl.DataFrame) -> pa.Array:
    """The results of states, of the type that was declared."""
    groups = Groups(pl.Series([[row] for row in range(len(states))], dtype=pl.List(pl.Int64)), keys)

    def result(number: int, _begin: int, _end: int) -> pa.Scalar:
        value = _loaded(aggregate, states[number]).result()
        return _as_declared(aggregate, value)

    values = _for_each(aggregate, "result", groups, result)
    return pa.array(values, aggregate.type)


@contextmanager
def in_batch(batch: int) -> Iterator[None]:
    """Errors of users' classes within name the batch."""
    try:
        yield
    except AggregateError as error:
        raise AggregateError(error.must, got=f"{error.got}, in batch {batch}", hint=error.hint) from None


def _for_each(
    aggregate: Aggregate, method: str, groups: Groups, call: Callable[[int, int, int], T]
) -> list[T]:
    """What a call gives for each group; its errors name the aggregate and the group."""
    made: list[T] = []
    number = 0
    try:
        for number, begin, end in groups:
            made.append(call(number, begin, end))
    except MemoryError:
        raise
    except MidstreamError as error:
        raise _failed(aggregate, method, groups.name(number), str(error.got)) from None
    except (Exception, pl.exceptions.PanicException) as error:
        raise _failed(aggregate, method, groups.name(number), _show(error)) from None
    return made


def _failed(aggregate: Aggregate, method: str, group: str, got: str) -> AggregateError:
    must = f"{method} of the aggregate {aggregate.name}, {aggregate.text}, must work"
    return AggregateError(must, got=f"{got}, for {group}", hint=_GO_ON)


def _show(error: BaseException) -> str:
    """An error of the user's class, and the line where it was raised."""
    frame = traceback.extract_tb(error.__traceback__)[-1]
    text = " ".join(f"{type(error).__name__}: {error}".rstrip(": ").split())
    return f"{text} ({frame.filename.rpartition('/')[2]}, line {frame.lineno})"


def _class_of(aggregate: Aggregate) -> Any:
    return aggregate.user_class


def _dumped(state: Any) -> bytes:
    dumped = state.dump()
    if isinstance(dumped, bytes | bytearray | memoryview):
        return bytes(dumped) + _BYTES
    if not isinstance(dumped, pa.RecordBatch | pa.Table):
        must = "dump must give bytes, a RecordBatch or a Table"
        raise AggregateError(must, got=f"{type(dumped).__name__} from dump")
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, dumped.schema) as writer:
        writer.write(dumped)
    return bytes(sink.getvalue()) + _ARROW


def _loaded(aggregate: Aggregate, dumped: bytes) -> Any:
    if dumped[-1:] == _BYTES:
        return _class_of(aggregate).load(dumped[:-1])
    return _class_of(aggregate).load(pa.ipc.open_stream(pa.py_buffer(dumped)).read_all())


def _as_declared(aggregate: Aggregate, value: Any) -> pa.Scalar:
    try:
        return pa.scalar(value, aggregate.type)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        must = "a result must be of the type that was declared"
        got = f"{type(value).__name__} {value!r}, which is no {show_type(aggregate.type)}"
        raise AggregateError(must, got=got) from None
