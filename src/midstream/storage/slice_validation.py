"""Validating slices: whether a table has the form of a slice, after its digest was checked.

A digest reveals damage, but not a forged file: an attacker who can write to a checkpoint can make a slice and
a manifest that match. So a slice is used only if it has the form that Midstream writes, and no value in it
can make the code that reads it access memory out of bounds.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa

from midstream.aggregate.partials import HASH, PANE
from midstream.engine.arrays import as_array
from midstream.engine.payload import segments_of
from midstream.plan.state_id import StateId
from midstream.state.slices import Slice, SliceKind

_EXTENSION = b"ARROW:extension:name"


def validation_error(slice_: Slice, table: pa.Table) -> str | None:
    """What is wrong with the table of a slice; None if nothing is."""
    if table.num_rows != slice_.rows:
        return f"{table.num_rows} rows instead of {slice_.rows}"
    if not all(map(_is_plain, table.schema)):
        return "a type that Arrow alone does not know"
    try:
        table.validate(full=True)
    except pa.ArrowInvalid:
        return "values that are not those of its types"
    return _CHECKS[slice_.owner.kind](slice_, table)


def _is_plain(field: pa.Field) -> bool:
    """Whether a type and all types in it are Arrow's own: extension types run code of their own."""
    kind = field.type
    if isinstance(kind, pa.BaseExtensionType) or _EXTENSION in (field.metadata or {}):
        return False
    if isinstance(kind, pa.DictionaryType):
        return _is_plain(pa.field("", kind.value_type))
    return all(_is_plain(kind.field(i)) for i in range(kind.num_fields))


def _index_error(slice_: Slice, table: pa.Table) -> str | None:
    expected = {"hash": pa.uint64()}
    expected |= {f"time {stream}": pa.int64() for stream in slice_.owner.state.streams}
    expected |= {name: pa.int64() for name in table.column_names if name.startswith("ref ")}
    types = dict(zip(table.column_names, table.schema.types, strict=True))
    try:
        for name in (name for name in types if name.startswith("ref ")):
            StateId.parse(name.removeprefix("ref "))
    except ValueError:
        return f"columns {', '.join(table.column_names)}"
    if types != expected or len(types) != table.num_columns:
        return f"columns {', '.join(table.column_names)}"
    return "nulls" if any(column.null_count for column in table.columns) else None


def _payload_error(slice_: Slice, table: pa.Table) -> str | None:
    try:
        segments = segments_of(table)
        rows = segments[:, 1]
    except (KeyError, TypeError, ValueError, IndexError):
        return "no table of segments"
    if segments.shape[1] != 2 + len(slice_.latest) or (rows < 0).any() or rows.sum() != table.num_rows:
        return "a table of other segments"
    return None


def _partial_error(slice_: Slice, table: pa.Table) -> str | None:
    types = {name: table.schema.field(name).type for name in table.column_names[:2]}
    if types != {HASH: pa.uint64(), PANE: pa.int64()}:
        return f"columns {', '.join(table.column_names)}"
    panes, hashes = as_array(table.column(PANE)), as_array(table.column(HASH))
    if table.column(PANE).null_count or table.column(HASH).null_count or np.any(panes[1:] < panes[:-1]):
        return "panes that are not in order"
    if np.any((panes[1:] == panes[:-1]) & (hashes[1:] < hashes[:-1])):
        return "groups that are not in order"
    if table.num_rows and (panes[0], panes[-1]) != (slice_.earliest, max(slice_.latest)):
        return "other panes"
    return None


_CHECKS: dict[SliceKind, Callable[[Slice, pa.Table], str | None]] = {
    "index": _index_error,
    "pending": _index_error,
    "payload": _payload_error,
    # Deferred results may be any table: the engine only passes them on.
    "deferred": lambda _slice, _table: None,
    "partial": _partial_error,
}
