"""Sending rows to another fragment: with the columns that it needs, hashed by its key."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pyarrow as pa

from midstream.engine.arrays import as_column
from midstream.engine.encode import ARRIVAL_EPOCH, HASH, time_column
from midstream.engine.error_context import error_context
from midstream.engine.hashing import Hashes, hash_key
from midstream.engine.index_rows import IndexRows
from midstream.engine.joiner import Joiner
from midstream.engine.program import Program
from midstream.engine.routed_rows import RoutedRows, RowsKind
from midstream.plan.layout import Fragment, FragmentInput, epoch_column
from midstream.plan.state_id import StateId

# Rows are sent in parts of about this size: a column of Arrow's cannot hold more than 2 GiB, and a state that
# is moved need not be in memory as a whole. The size of a part tells how many rows the next one has.
_PART_BYTES = 64 << 20
_FIRST_PART_ROWS = 1 << 16
_MAX_GROWTH = 4

CountFlows = Callable[[Hashes, Hashes], None]
"""Counts rows by their hashes, in the fragment that they come from and in the one that they go to."""


def send(
    joiner: Joiner,
    rows: IndexRows,
    program: Program,
    state: StateId,
    *,
    kind: RowsKind,
    arrived: int | None = None,
    count_flows: CountFlows | None = None,
) -> Iterator[RoutedRows]:
    """Index rows with their payload, split by the partitions of an input of another fragment.

    For the receiver their components arrived in the epochs in which they did, or all in ``arrived``. They are
    counted by ``count_flows``, if it is given.
    """
    receiver = program.layout.fragment_of_input[state]
    routing = program.places.routing(receiver.key, receiver.site)
    start, count = 0, _FIRST_PART_ROWS
    while start < len(rows):
        end = min(start + count, len(rows))
        part = rows if end - start == len(rows) else rows.take(np.arange(start, end))
        hashes, table = _with_payload(joiner, part, receiver, receiver.inputs_by_id[state], kind, arrived)
        if count_flows is not None:
            count_flows(part.hashes, hashes)
        for routed in routing.split(table, hashes, state.streams):
            is_copied = routed.is_copy and kind == "arriving"
            yield RoutedRows(routed.partition, state, "copied" if is_copied else kind, routed.table)
        start = end
        count = min(_MAX_GROWTH * count, max(1, len(part) * _PART_BYTES // max(1, table.nbytes)))


def _with_payload(
    joiner: Joiner,
    rows: IndexRows,
    receiver: Fragment,
    target: FragmentInput,
    kind: RowsKind,
    arrived: int | None,
) -> tuple[Hashes, pa.Table]:
    """The hashes of rows by the key of a fragment, and the columns that an input of it needs."""
    if rows.key == receiver.key:
        hashes = rows.hashes
    else:
        with error_context(columns=(joiner.query.classes[c] for c in receiver.key)):
            hashes = hash_key([joiner.key_values(rows, c) for c in receiver.key], len(rows))
    columns: dict[str, object] = {HASH: as_column(hashes)}
    columns |= {time_column(s): as_column(rows.times[s]) for s in target.streams}
    epoch_columns = {epoch_column(stream): stream for stream in target.streams}
    payload = [column for column in target.columns if column not in epoch_columns]
    for column in target.columns:
        if column in epoch_columns:
            of_stream = epoch_columns[column]
            epochs = joiner.epochs(rows, of_stream) if arrived is None else np.full(len(rows), arrived)
            columns[column] = as_column(epochs)
    if kind != "arriving" and target.is_stream:
        # Rows that have arrived earlier keep the epochs in which they did.
        columns[ARRIVAL_EPOCH] = as_column(joiner.epochs(rows, target.streams[0]))
    fetched = joiner.fetch_all(rows, [(_stream_of(column), column) for column in payload])
    columns |= dict(zip(payload, fetched, strict=True))
    return hashes, pa.table(columns)


def _stream_of(column: str) -> str:
    """The stream of a payload column: the part before ``.`` or ``#``."""
    return column.replace("#", ".").partition(".")[0]
