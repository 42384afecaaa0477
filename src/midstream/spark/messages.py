"""Messages between tasks: few and large, most of them with rows as an Arrow blob.

A message goes to a task, and may have rows for all engine partitions that the task runs. They are shuffled as
plain Python values. With Spark's rows, every epoch would need a run of the query optimizer, and each blob
would be copied several times in the JVM.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Literal, NamedTuple, TypeVar

import msgspec
import numpy as np
import pyarrow as pa
from pyspark import TaskContext

from midstream.engine.arrays import as_column
from midstream.engine.error_context import error_context
from midstream.engine.link_traffic import LinkCounter, LinkName, LinkTraffic
from midstream.engine.routed_rows import RoutedRows, RowsKind
from midstream.errors import MidstreamError, error_fields
from midstream.plan.state_id import StateId
from midstream.protocol.report import Report, encode_report
from midstream.query.network import Site
from midstream.spark.task_ranges import TaskRanges
from midstream.spark.worker_gc import freeze_modules

EPOCH_PROPERTY = "midstream.epoch"
"""Spark's local property by which tasks know their epoch; after drains, Spark's batch has another number."""

# A message is a record of the shuffle: large enough for little overhead, small enough for the JVM's buffers.
_MESSAGE_BYTES = 1 << 20

_PARTS = b"parts"
"""The metadata of a blob's batch with the engine partitions that its rows are for, and how many each has."""


class RowsMessage(NamedTuple):
    """Rows for an input of a fragment."""

    origin: int
    """What the first of its rows come from: a task that reads a source, or an engine partition. Messages are
    sorted by input and origin, as Spark delivers them in any order."""
    kind: RowsKind
    input: StateId
    null_keys: int
    """Rows that the task did not send because a key was null."""
    blob: pa.Buffer


class SlicesMessage(NamedTuple):
    """The slices that a task needs in a stage, from the driver."""

    stage: int
    blob: bytes


class ControlMessage(NamedTuple):
    """A message to the driver: the report of a task, or the error that ended it."""

    origin: int
    kind: Literal["report", "error"]
    blob: pa.Buffer


AddressedRows = tuple[int, RowsMessage]
SourceMessage = tuple[int, RowsMessage | ControlMessage]
AddressedMessage = tuple[int, RowsMessage | SlicesMessage | ControlMessage]
"""Messages and the tasks that they go to: rows, what tasks send that read sources, and what any sends."""

M = TypeVar("M")


def errors_as_messages(
    what: str, messages: Iterable[tuple[int, M]], origin: int, batch: int | None
) -> Iterator[tuple[int, M | ControlMessage]]:
    """The messages of a task; if it raises an error, that is the last of them.

    So the driver gets the error itself. Spark would run the task four times, and pass on only the text.
    """
    try:
        with error_context(what, batch=batch):
            yield from messages
    except MidstreamError as error:
        fields = msgspec.json.encode(error_fields(error))
        yield 0, ControlMessage(origin, "error", pa.py_buffer(fields))
    freeze_modules()


def running_epoch() -> int | None:
    """The epoch that the running task belongs to."""
    context = TaskContext.get()
    epoch = context.getLocalProperty(EPOCH_PROPERTY) if context is not None else None
    return None if epoch is None else int(epoch)


class Outbox:
    """Packs rows into messages: those for one input and the partitions of one task together."""

    def __init__(self, ranges: TaskRanges, null_keys: int = 0, source: Site | None = None) -> None:
        """The first message also has the number of null keys; ``source`` is the site that rows come from."""
        self._ranges = ranges
        self._counter = None if source is None else LinkCounter(source)
        self._null_keys = null_keys
        self._waiting: dict[_Address, _Parts] = {}

    def add(self, rows: Iterable[RoutedRows], origin: int) -> Iterator[AddressedRows]:
        """Take rows of an origin; gives the messages that are large enough. Origins come in rising order."""
        for part in rows:
            address = _Address(self._ranges.task_of(part.partition), part.input, part.kind)
            size = part.table.nbytes
            if size >= _MESSAGE_BYTES and address in self._waiting:
                # It is sent by itself, in pieces that need not be copied.
                yield from self._send(address)
            waiting = self._waiting.setdefault(address, _Parts(origin))
            waiting.add(part, size)
            if waiting.bytes >= _MESSAGE_BYTES:
                yield from self._send(address)

    def flush(self) -> Iterator[AddressedRows]:
        """The messages that have waited for more rows."""
        for address in list(self._waiting):
            yield from self._send(address)

    @property
    def links(self) -> dict[LinkName, LinkTraffic]:
        """What the messages to other sites weigh."""
        return {} if self._counter is None else self._counter.links

    def _send(self, address: _Address) -> Iterator[AddressedRows]:
        parts = self._waiting.pop(address)
        target = self._ranges.site_of(address.task)
        for blob, rows in parts.pack():
            if self._counter is not None and target is not None:
                self._counter.count(target, blob.size, rows)
            message = RowsMessage(parts.origin, address.kind, address.input, self._null_keys, blob)
            yield address.task, message
            self._null_keys = 0


def links_report(outbox: Outbox, origin: int) -> Iterator[tuple[int, ControlMessage]]:
    """What a task has sent to other sites, from one that reports nothing else; nothing if it sent nothing."""
    if outbox.links:
        yield report_message(Report(links=outbox.links), origin)


def report_message(report: Report, origin: int) -> tuple[int, ControlMessage]:
    """What a task tells the driver; others pass it on."""
    return 0, ControlMessage(origin, "report", pa.py_buffer(encode_report(report)))


class _Address(NamedTuple):
    task: int
    input: StateId
    kind: RowsKind


class _Parts:
    """Rows that become a message."""

    def __init__(self, origin: int) -> None:
        self.origin = origin
        self.bytes = 0
        self._partitions: list[int] = []
        self._tables: list[pa.Table] = []

    def add(self, rows: RoutedRows, size: int) -> None:
        """Take the rows of one origin for one partition."""
        self.bytes += size
        self._partitions.append(rows.partition)
        self._tables.append(rows.table)

    def pack(self) -> Iterator[tuple[pa.Buffer, int]]:
        """The rows as blobs, with their numbers; by partition, and in the order in which they came."""
        if len(self._tables) == 1:
            ((partition,), (table,)) = self._partitions, self._tables
            rows = max(1, table.num_rows * _MESSAGE_BYTES // max(self.bytes, 1))
            for start in range(0, max(table.num_rows, 1), rows):
                piece = table.slice(start, rows)
                yield _pack(piece, [partition], [piece.num_rows]), piece.num_rows
            return
        table = pa.concat_tables(self._tables)
        targets = np.repeat(self._partitions, [part.num_rows for part in self._tables])
        if any(after < before for before, after in pairwise(self._partitions)):
            order = np.argsort(targets, kind="stable")
            table, targets = table.take(as_column(order)), targets[order]
        partitions, counts = np.unique(targets, return_counts=True)
        yield _pack(table, partitions.tolist(), counts.tolist()), table.num_rows


def _pack(table: pa.Table, partitions: list[int], counts: list[int]) -> pa.Buffer:
    batches = table.combine_chunks().to_batches()
    batch = batches[0] if batches else pa.RecordBatch.from_pylist([], table.schema)
    parts = np.array([partitions, counts], "<i4").tobytes()
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_batch(batch, custom_metadata={_PARTS: parts})
    return sink.getvalue()


class PackedRows(NamedTuple):
    """The rows of a blob."""

    table: pa.Table
    partitions: list[int]
    counts: list[int]
    """How many of the rows are for each of the partitions."""

    def by_partition(self) -> Iterator[tuple[int, pa.Table]]:
        """The rows for each partition."""
        start = 0
        for partition, count in zip(self.partitions, self.counts, strict=True):
            yield partition, self.table.slice(start, count)
            start += count


def unpack(blob: pa.Buffer) -> PackedRows:
    """The rows of a blob; nothing is copied."""
    batch, metadata = pa.ipc.open_stream(blob).read_next_batch_with_custom_metadata()
    partitions, counts = np.frombuffer(metadata[_PARTS], "<i4").reshape(2, -1).tolist()
    return PackedRows(pa.Table.from_batches([batch]), partitions, counts)
