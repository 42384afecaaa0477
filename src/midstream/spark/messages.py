"""Messages between tasks: few and large, most of them with rows as an Arrow blob.

They are shuffled as plain Python values. With Spark's rows, every epoch would need a run of the query
optimizer, and each blob would be copied several times in the JVM.
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

_BATCH_ID = "streaming.sql.batchId"
"""Spark's local property with the number of a task's micro-batch."""

# A message is a record of the shuffle: large enough for little overhead, small enough for the JVM's buffers.
_MESSAGE_BYTES = 1 << 20


class RowsMessage(NamedTuple):
    """Rows for an input of a fragment."""

    origin: int
    """The task that sent it; messages are sorted by input and origin, as Spark delivers them in any order."""
    kind: RowsKind
    input: StateId
    null_keys: int
    """Rows that the task did not send because a key was null."""
    blob: pa.Buffer


class ControlMessage(NamedTuple):
    """A message to the driver: the report of a partition, or the error that ended the task."""

    origin: int
    kind: Literal["report", "error"]
    blob: pa.Buffer


Message = RowsMessage | ControlMessage

AddressedMessage = tuple[int, Message]
"""A message and the engine partition that it goes to."""


def errors_as_messages(
    what: str, messages: Iterable[AddressedMessage], origin: int, batch: int | None
) -> Iterator[AddressedMessage]:
    """The messages of a task; if it raises an error, that is the last of them.

    So the driver gets the error itself. Spark would run the task four times, and pass on only the text.
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
    batch = context.getLocalProperty(_BATCH_ID) if context is not None else None
    return None if batch is None else int(batch)


def encoded(encoder: Encoder, table: pa.Table, origin: int) -> Iterator[AddressedMessage]:
    """The rows of a source as messages."""
    parts, null_keys = encoder(table)
    if null_keys and not parts:
        parts = [encoder.empty(table)]
    yield from addressed(parts, origin, null_keys)


def addressed(parts: Iterable[RoutedRows], origin: int, null_keys: int = 0) -> Iterator[AddressedMessage]:
    """Routed rows as messages; the first also has the number of rows with null keys."""
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
