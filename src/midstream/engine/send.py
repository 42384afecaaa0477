"""Sending rows to another fragment: with the columns that it needs, hashed by its key."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from midstream.engine.arrays import as_column
from midstream.engine.encode import ARRIVAL_EPOCH, HASH, time_column
from midstream.engine.error_context import error_context
from midstream.engine.hashing import hash_key
from midstream.engine.index_rows import IndexRows
from midstream.engine.joiner import Joiner
from midstream.engine.routed_rows import RoutedRows, RowsKind
from midstream.engine.routing import Routing, split
from midstream.plan.layout import Fragment, epoch_column
from midstream.plan.state_id import StateId


def send(
    joiner: Joiner, rows: IndexRows, receiver: Fragment, state: StateId, routing: Routing, *, kind: RowsKind
) -> Iterator[RoutedRows]:
    """Index rows with their payload, split by the partitions of an input of another fragment."""
    target = receiver.inputs_by_id[state]
    with error_context(columns=(joiner.query.classes[c] for c in receiver.key)):
        hashes = hash_key([joiner.key_values(rows, c) for c in receiver.key], len(rows))
    columns: dict[str, object] = {HASH: as_column(hashes)}
    columns |= {time_column(s): as_column(rows.times[s]) for s in target.streams}
    epoch_columns = {epoch_column(stream): stream for stream in target.streams}
    payload = [column for column in target.columns if column not in epoch_columns]
    columns |= {
        c: as_column(joiner.epochs(rows, epoch_columns[c])) for c in target.columns if c in epoch_columns
    }
    if kind != "arriving" and target.is_stream:
        # Rows that have arrived earlier keep the epochs in which they did.
        columns[ARRIVAL_EPOCH] = as_column(joiner.epochs(rows, target.streams[0]))
    fetched = joiner.fetch_all(rows, [(_stream_of(column), column) for column in payload])
    columns |= dict(zip(payload, fetched, strict=True))
    for partition, part in split(pa.table(columns), routing.targets(hashes)):
        yield RoutedRows(partition, state, kind, part)


def _stream_of(column: str) -> str:
    """The stream of a payload column: the part before ``.`` or ``#``."""
    return column.replace("#", ".").partition(".")[0]
