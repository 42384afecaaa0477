"""What travels between tasks: few, large messages, most of them an Arrow blob of the rows of one table.

They are shuffled as plain Python values. Spark's rows would cost a plan of the query optimizer in every
epoch, and several copies of each blob on its way through the JVM.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Literal, NamedTuple

import msgspec
import pyarrow as pa
from pyspark import TaskContext

from midstream.engine.encode import Encoder
from midstream.engine.error_context import error_context
from midstream.engine.routed_rows import RoutedRows, RowsKind
from midstream.errors import MidstreamError, error_fields
from midstream.plan.state_id import StateId

_BATCH = "streaming.sql.batchId"
"""Where Spark tells tasks the number of their micro-batch."""

# A message is a record of the shuffle: large enough to cost little each, small enough to flow.
_MESSAGE_BYTES = 1 << 20


class RowsMessage(NamedTuple):
    """Rows for an input of a fragment."""

    origin: int
    """The task that sent it: with the input it gives messages an order that does not depend on Spark's."""
    kind: RowsKind
    input: StateId
    null_keys: int
    """Rows that were left behind by the task because a key was null."""
    blob: pa.Buffer


class ControlMessage(NamedTuple):
    """What a task tells the driver: the report of a partition, or the error that ended the task."""

    origin: int
    kind: Literal["report", "error"]
    blob: pa.Buffer


Message = RowsMessage | ControlMessage

Addressed = tuple[int, Message]
"""A message and the engine partition that it goes to."""


def errors_as_messages(
    what: str, messages: Iterable[Addressed], origin: int, batch: int | None
) -> Iterator[Addressed]:
    """The messages of a task; an error is the last of them.

    As a message it reaches the driver as what it is. Spark would run the task four times, and pass on a text.
    """
    try:
        with error_context(what, batch=batch):
            yield from messages
    except MidstreamError as error:
        fields = msgspec.json.encode(error_fields(error))
        yield 0, ControlMessage(origin, "error", pa.py_buffer(fields))


def running_batch() -> int | None:
    """The micro-batch that the running task belongs to."""
    context = TaskContext.get()
    batch = context.getLocalProperty(_BATCH) if context is not None else None
    return None if batch is None else int(batch)


def encoded(encoder: Encoder, table: pa.Table, origin: int) -> Iterator[Addressed]:
    """The messages that the rows of a source become."""
    parts, null_keys = encoder(table)
    if null_keys and not parts:
        parts = [encoder.empty(table)]
    yield from addressed(parts, origin, null_keys)


def addressed(parts: Iterable[RoutedRows], origin: int, null_keys: int = 0) -> Iterator[Addressed]:
    """Rows on their way as messages; the first also says how many rows were left behind."""
    for part in parts:
        for blob in pack(part.table):
            yield part.partition, RowsMessage(origin, part.kind, part.input, null_keys, blob)
            null_keys = 0


def pack(table: pa.Table) -> Iterator[pa.Buffer]:
    """The rows of a table as blobs of bounded size."""
    rows = max(1, table.num_rows * _MESSAGE_BYTES // max(table.nbytes, 1))
    for start in range(0, max(table.num_rows, 1), rows):
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table.slice(start, rows))
        yield sink.getvalue()


def unpack(blob: pa.Buffer) -> pa.Table:
    """The rows of a blob; nothing is copied."""
    return pa.ipc.open_stream(blob).read_all()
