"""Comparing results: as multisets, with a message that shows what is wrong.

Two values are the same if they look the same: null is null, NaN is NaN, but 0.0 is not -0.0 and 1.50 is not
1.5, because a join hands values on as they are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyarrow import types

_MAX_SHOWN = 5
_ROWS_AT_ONCE = 10_000


def assert_same_rows(got: pa.Table, want: pa.Table, what: str = "results") -> None:
    """Fail unless both tables have the same columns and the same rows equally often, in any order."""
    assert got.schema.names == want.schema.names, (
        f"{what}: columns must be {want.schema.names}; got {got.schema.names}"
    )
    if got.schema != want.schema:
        got = got.cast(want.schema)
    if _are_same(got, want):
        return
    surplus, missing = difference(got, want)
    lines = [
        f"{what}: {want.num_rows} rows are wanted, {got.num_rows} were got; "
        f"{missing.total()} missing, {surplus.total()} surplus",
        *_show("missing", missing, want.schema.names),
        *_show("surplus", surplus, want.schema.names),
    ]
    raise AssertionError("\n".join(lines))


def _are_same(got: pa.Table, want: pa.Table) -> bool:
    """Whether there is no difference: as :func:`difference`, but column by column, which is much faster."""
    rows = np.zeros(got.num_rows + want.num_rows, np.int64)
    for got_column, want_column in zip(got.columns, want.columns, strict=True):
        codes = _codes([*got_column.chunks, *want_column.chunks, pa.array([], want_column.type)])
        _, rows = np.unique(rows * (codes.max(initial=0) + 1) + codes, return_inverse=True)
    count = int(rows.max(initial=0)) + 1
    got_rows, want_rows = np.split(rows, [got.num_rows])
    return np.array_equal(np.bincount(got_rows, minlength=count), np.bincount(want_rows, minlength=count))


def _codes(chunks: Sequence[pa.Array]) -> npt.NDArray[np.int64]:
    """A number for each value, the same for those that look the same."""
    values = pa.concat_arrays(chunks)
    if types.is_nested(values.type) or types.is_floating(values.type) or types.is_null(values.type):
        values = pa.array([_text(value) for value in values.to_pylist()], pa.string())
    codes: npt.NDArray[np.int64] = values.dictionary_encode("encode").indices.to_numpy().astype(np.int64)
    return codes


def difference(got: pa.Table, want: pa.Table) -> tuple[Counter[tuple[str, ...]], Counter[tuple[str, ...]]]:
    """The rows that are surplus and the rows that are missing, each with how often."""
    rest = Counter(_rows(got))
    rest.subtract(Counter(_rows(want)))
    return +rest, -rest


def _rows(table: pa.Table) -> Iterator[tuple[str, ...]]:
    """Each row as the texts of its values: not all values compare or hash (NaN, structs, lists)."""
    for start in range(0, table.num_rows, _ROWS_AT_ONCE):
        part = table.slice(start, _ROWS_AT_ONCE)
        columns = [[_text(value) for value in column.to_pylist()] for column in part.columns]
        yield from zip(*columns, strict=True)


def _text(value: Any) -> str:
    return "null" if value is None else repr(value)


def _show(what: str, rows: Counter[tuple[str, ...]], names: list[str]) -> Iterator[str]:
    for row, count in rows.most_common(_MAX_SHOWN):
        cells = ", ".join(f"{name}={value}" for name, value in zip(names, row, strict=True))
        yield f"  {what}{f' {count} times' if count > 1 else ''}: {cells}"
    if len(rows) > _MAX_SHOWN:
        yield f"  ... and {len(rows) - _MAX_SHOWN} more that are {what}"
