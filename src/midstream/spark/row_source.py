"""Any streaming DataFrame as a source: Spark computes its rows, tasks encode them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import ClassVar, Protocol

import pyarrow as pa
from pyspark import RDD, TaskContext
from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as F  # noqa: N812  # as everybody calls it

from midstream.engine.encode import Destination, Encoder, SourceColumn, time_column
from midstream.engine.error_context import error_context
from midstream.errors import InternalError, QueryError
from midstream.plan.state_id import StateId
from midstream.query.query import Query
from midstream.query.types import TIMESTAMP, show_type
from midstream.spark.messages import (
    ControlMessage,
    Outbox,
    RowsMessage,
    SourceMessage,
    errors_as_messages,
    links_report,
    running_epoch,
    unpack,
)
from midstream.spark.task_ranges import TaskRanges

Batches = Iterator[pa.RecordBatch]
Encoders = Mapping[str, Encoder]

_MESSAGE_COLUMNS = (
    "encoding int, task int, origin int, kind string, input string, null_keys long, blob binary"
)
_MESSAGE_SCHEMA = pa.schema(
    [
        ("encoding", pa.int32()),
        ("task", pa.int32()),
        ("origin", pa.int32()),
        ("kind", pa.string()),
        ("input", pa.string()),
        ("null_keys", pa.int64()),
        ("blob", pa.binary()),
    ]
)


_MAX_DAYS = 2**63 // 86_400_000_000 - 1
"""Days before and after 1970 that fit into a timestamp in microseconds, in any time zone."""


class Sources(Protocol):
    """The streams of a query, as a streaming DataFrame and as messages of a micro-batch."""

    counted_by_spark: ClassVar[bool]
    """Whether Spark reads the rows of a micro-batch itself, and so counts them."""

    @property
    def frames(self) -> Mapping[str, DataFrame]:
        """The DataFrames of the streams, in the order in which Spark has them."""

    def stream(self) -> DataFrame:
        """The DataFrame that Spark runs as a streaming query."""

    def messages(self, batch: DataFrame, encoders: Encoders, ranges: TaskRanges) -> RDD[SourceMessage]:
        """The messages of a micro-batch of :meth:`stream`, for the plan that the encoders belong to.

        There may be encoders of some streams only.
        """

    def check_columns(self, query: Query, encoders: Encoders) -> None:
        """Refuse another definition, with these encoders, that needs what they do not give."""


@dataclass(frozen=True)
class Encoding:
    """How the rows of streams are encoded for one definition."""

    query: Query
    encoders: Encoders


def _missing_parts(sent: Encoders, encoders: Encoders) -> list[str]:
    """What rows that were sent do not have for other encoders, in words."""
    found: list[str] = []
    for name, encoder in encoders.items():
        if name not in sent:
            found.append(f"stream {name}")
        elif not sent[name].covers(encoder):
            found += sent[name].lacking(encoder) or [f"other keys of {name}"]
    return found


@dataclass(frozen=True)
class RowSources:
    """DataFrames of any kind, streaming or not."""

    counted_by_spark: ClassVar[bool] = True

    frames: Mapping[str, DataFrame]
    encodings: tuple[Encoding, ...]
    """How tasks encode rows, for each definition that the query had when it was started. Spark keeps them as
    long as the query runs, whatever its plan is by then."""
    ranges: TaskRanges
    """The tasks that get the rows. Spark keeps them, too, whatever the size of the cluster is by then."""

    def stream(self) -> DataFrame:
        """The union of all frames, encoded as messages."""
        return reduce(DataFrame.union, (self._encode(name, frame) for name, frame in self.frames.items()))

    def messages(self, batch: DataFrame, encoders: Encoders, ranges: TaskRanges) -> RDD[SourceMessage]:
        """The rows of a batch are messages already, for the plan and the tasks at the start of the query."""
        number = self._fitting(encoders)
        if number is None:
            raise InternalError("rows must be encoded for each definition", got=", ".join(encoders))
        before = self.encodings[number].encoders
        rows = batch.rdd
        if len(self.encodings) > 1:
            rows = rows.filter(lambda row: row.encoding == number)
        messages = rows.map(_addressed)
        if (encoders, ranges) == (before, self.ranges):
            return messages
        return messages.flatMap(encode_again(before, encoders, ranges))

    def check_columns(self, query: Query, encoders: Encoders) -> None:
        """Refuse a definition that needs other columns than those that Spark sends."""
        if self._fitting(encoders) is None:
            raise QueryError(
                "a new definition for a running query must need only columns, keys and streams that Spark "
                "already sends it, unless all streams are plain Parquet files",
                got=", ".join(self._lacking(encoders)),
                hint="stop the query, and start the new one with the same checkpointLocation and the option "
                "'replace'",
            )

    def _lacking(self, encoders: Encoders) -> list[str]:
        """What Spark does not send of what these encode, in words; of keys it may send hashes alone."""
        return min((_missing_parts(encoding.encoders, encoders) for encoding in self.encodings), key=len)

    def _fitting(self, encoders: Encoders) -> int | None:
        """The encoding from which rows can be encoded by these."""
        for number, encoding in enumerate(self.encodings):
            if all(n in encoding.encoders and encoding.encoders[n].covers(e) for n, e in encoders.items()):
                return number
        return None

    def _encode(self, name: str, frame: DataFrame) -> DataFrame:
        """The messages of a stream for all definitions: a frame of each would be another source for Spark."""
        columns: list[Column] = []
        encodings: list[_StreamEncoding] = []
        for number, encoding in enumerate(self.encodings):
            if name not in encoding.encoders:
                continue
            encoder, query = encoding.encoders[name], encoding.query
            begin = len(columns)
            # Our names have dots, which mapInArrow would take for nested fields: the task restores them.
            kinds = [query.by_name[name].type_of(column.ref) for column in encoder.source]
            columns += [
                _column(frame, column, kind, name).alias(f"c{begin + i}")
                for i, (column, kind) in enumerate(zip(encoder.source, kinds, strict=True))
            ]
            encodings.append(_StreamEncoding(number, encoder, _source_schema(query, encoder), begin))
        if not encodings:  # of a stream that has left there are no rows
            columns = [F.lit(0)]
        return frame.select(*columns).mapInArrow(_encode_task(encodings, self.ranges), _MESSAGE_COLUMNS)


@dataclass(frozen=True)
class _StreamEncoding:
    """How tasks encode the rows of one stream for one definition."""

    number: int
    encoder: Encoder
    schema: pa.Schema
    begin: int
    """The first of its columns."""

    def of(self, received: list[pa.RecordBatch]) -> pa.Table:
        """Its columns of what Spark sends."""
        table = pa.Table.from_batches(received).select(range(self.begin, self.begin + len(self.schema)))
        # Spark labels timestamps with the session's zone; the values are the same instants.
        return table.rename_columns(self.schema.names).cast(self.schema)


def encode_again(
    before: Encoders, after: Encoders, ranges: TaskRanges
) -> Callable[[SourceMessage], Iterable[SourceMessage]]:
    """The function that turns a message for one plan into messages for another."""
    sent_to = {
        destination.state: (encoder, destination)
        for encoder in before.values()
        for destination in encoder.destinations
    }

    def run(message: SourceMessage) -> Iterable[SourceMessage]:
        _, content = message
        if isinstance(content, ControlMessage):
            # What a report says of links is of messages that are not sent.
            return (message,) if content.kind == "error" else ()
        encoder, destination = sent_to[content.input]
        if encoder.stream not in after:
            return ()  # another definition takes it
        # A stream's rows may have been sent to several inputs, and copied to several partitions of each.
        # They are taken from where each of them is once.
        has_all = destination == encoder.destinations[0] and content.kind == "arriving"
        if not has_all and not content.null_keys:
            return ()
        encoded = encode(after[encoder.stream], destination, content, has_all)
        return errors_as_messages("encoding rows", encoded, content.origin, running_epoch())

    def encode(
        encoder: Encoder, was_for: Destination, content: RowsMessage, has_all: bool
    ) -> Iterator[SourceMessage]:
        with error_context(streams=[encoder.stream]):
            table = unpack(content.blob).table
            if not has_all:
                # Other messages have the same rows; this one has the count of null keys.
                table = table.slice(0, 0)
            parts = list(encoder.reencode(table, was_for)) or [encoder.empty(table)]
            outbox = Outbox(ranges, content.null_keys, encoder.site)
            yield from outbox.add(parts, content.origin)
            yield from outbox.flush()
            yield from links_report(outbox, content.origin)

    return run


def encoded(encoder: Encoder, table: pa.Table, origin: int, ranges: TaskRanges) -> Iterator[SourceMessage]:
    """The rows of a source as messages."""
    parts, null_keys = encoder(table)
    if null_keys and not parts:
        parts = [encoder.empty(table)]
    outbox = Outbox(ranges, null_keys, encoder.site)
    yield from outbox.add(parts, origin)
    yield from outbox.flush()
    yield from links_report(outbox, origin)


def _encode_task(encodings: Sequence[_StreamEncoding], ranges: TaskRanges) -> Callable[[Batches], Batches]:
    """The function that turns the rows of a source into messages."""

    def run(batches: Batches) -> Batches:
        received = [batch for batch in batches if batch.num_rows]
        if not received:
            return
        origin = _running_partition()
        for each in encodings:
            messages = encode(each, received, origin)
            for task, message in errors_as_messages("encoding rows", messages, origin, running_epoch()):
                yield _batch(task, message, each.number)

    def encode(
        encoding: _StreamEncoding, received: list[pa.RecordBatch], origin: int
    ) -> Iterator[SourceMessage]:
        encoder = encoding.encoder
        with error_context(streams=[encoder.stream], columns=(column.ref for column in encoder.source)):
            table = encoding.of(received)
        with error_context(streams=[encoder.stream]):
            yield from encoded(encoder, table, origin, ranges)

    return run


def _running_partition() -> int:
    context = TaskContext.get()
    if context is None:
        raise InternalError("a task must run inside Spark", got="no task context")
    return context.partitionId()


def _batch(task: int, message: RowsMessage | ControlMessage, encoding: int) -> pa.RecordBatch:
    """A message as a row; the blob is not copied."""
    rows = (message.input, message.null_keys) if isinstance(message, RowsMessage) else (None, None)
    values = (encoding, task, message.origin, message.kind, *rows)
    columns = [pa.array([value], field.type) for value, field in zip(values, _MESSAGE_SCHEMA, strict=False)]
    offsets = pa.array([0, message.blob.size], pa.int32()).buffers()[1]
    columns.append(pa.Array.from_buffers(pa.binary(), 1, [None, offsets, message.blob]))
    return pa.RecordBatch.from_arrays(columns, schema=_MESSAGE_SCHEMA)


def _addressed(row: Row) -> SourceMessage:
    blob = pa.py_buffer(row.blob)
    if row.input is None:
        return row.task, ControlMessage(row.origin, row.kind, blob)
    return row.task, RowsMessage(row.origin, row.kind, StateId(row.input), row.null_keys, blob)


def _column(frame: DataFrame, column: SourceColumn, kind: pa.DataType, stream: str) -> Column:
    first, *fields = column.ref.path
    value = frame["`" + first.replace("`", "``") + "`"]
    for name in fields:
        value = value.getField(name)
    if column.name == time_column(stream):
        return F.unix_micros(_cast(value, kind, TIMESTAMP))
    return value if column.type is None else _cast(value, kind, column.type)


def _cast(value: Column, kind: pa.DataType, target: pa.DataType) -> Column:
    """A cast that raises no error; dates and times that do not fit become null."""
    cast = value.cast(show_type(target))
    if kind == target or not pa.types.is_timestamp(target):
        return cast
    # Not try_cast: it raises an error for this overflow, too.
    return F.when(F.unix_date(value.cast("date")).between(-_MAX_DAYS, _MAX_DAYS), cast)


def _source_schema(query: Query, encoder: Encoder) -> pa.Schema:
    stream = query.by_name[encoder.stream]
    return pa.schema(
        [
            (c.name, pa.int64() if c.name == time_column(stream.name) else c.type or stream.type_of(c.ref))
            for c in encoder.source
        ]
    )
