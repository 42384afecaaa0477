"""Rows that leave a fragment: they carry what is needed elsewhere, and are hashed by the key used there."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from midstream.engine.arrays import as_column
from midstream.engine.encode import ARRIVED, HASH, RoutedRows, time_column
from midstream.engine.error_context import error_context
from midstream.engine.hashing import hash_key
from midstream.engine.index_rows import IndexRows
from midstream.engine.joiner import Joiner
from midstream.engine.routing import Routing, split
from midstream.plan.layout import Fragment, StateId, epoch_column

# Rows with this before the id of an input do not arrive now: they belong to its state, and were missing.
STATE = "+"
# What is computed of a state bit by bit waits under this name until all of it is there.
WAITING = "~"


def send(
    joiner: Joiner,
    rows: IndexRows,
    to: Fragment,
    state: StateId,
    routing: Routing,
    *,
    name: StateId | None = None,
) -> Iterator[RoutedRows]:
    """Rows for an input of another fragment, or under another ``name`` for its state."""
    fragment_input = to.by_id[state]
    with error_context(columns=(joiner.query.classes[c] for c in to.key)):
        hashes = hash_key([joiner.key_values(rows, c) for c in to.key], len(rows))
    columns: dict[str, object] = {HASH: as_column(hashes)}
    columns |= {time_column(s): as_column(rows.times[s]) for s in fragment_input.streams}
    epochs = {epoch_column(stream): stream for stream in fragment_input.streams}
    carried = [column for column in fragment_input.columns if column not in epochs]
    columns |= {c: as_column(joiner.epochs(rows, epochs[c])) for c in fragment_input.columns if c in epochs}
    if name is not None and fragment_input.is_stream:
        columns[ARRIVED] = as_column(joiner.epochs(rows, fragment_input.streams[0]))
    fetched = joiner.fetch_all(rows, [(_stream_of(column), column) for column in carried])
    columns |= dict(zip(carried, fetched, strict=True))
    for target, part in split(pa.table(columns), routing.targets(hashes)):
        yield RoutedRows(target, name or state, part)


def _stream_of(column: str) -> str:
    """The stream of a payload column: the word before ``.`` or ``#``."""
    return column.replace("#", ".").partition(".")[0]
