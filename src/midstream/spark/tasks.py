"""What runs in Spark's tasks: encoding the sources, and the stages of the step.

All that Spark shuffles are few, large rows: a target partition, what the blob is, and an Arrow blob with
the rows of one table. Reports of earlier stages and rows for later ones pass through a stage unread.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import msgspec
import pyarrow as pa
from pyspark import TaskContext

from midstream.engine.encode import Encoder
from midstream.engine.program import InputCount, Program
from midstream.errors import InternalError, MidstreamError, error_fields
from midstream.protocol.report import Report, encode_report
from midstream.storage.partition import OutputWriter, run_partition
from midstream.storage.store import Store

MESSAGE = "partition int, origin int, input string, null_keys long, blob binary"
REPORT = "#report"
ERROR = "#error"

_ARROW = pa.schema(
    [
        ("partition", pa.int32()),
        ("origin", pa.int32()),
        ("input", pa.string()),
        ("null_keys", pa.int64()),
        ("blob", pa.binary()),
    ]
)
# Spark and Arrow both hold a value in at most 2 GiB; smaller pieces also keep the transfer's memory low.
_PIECE = 64 << 20

Batches = Iterator[pa.RecordBatch]


@dataclass(frozen=True)
class Message:
    """One shuffled row."""

    partition: int
    origin: int
    input: str
    null_keys: int
    blob: bytes | pa.Buffer


def encode_task(encoder: Encoder, schema: pa.Schema) -> Callable[[Batches], Batches]:
    """The function that turns the rows of a source into messages."""

    def run(batches: Batches) -> Batches:
        received = [batch for batch in batches if batch.num_rows]
        if not received:
            return
        # Spark labels timestamps with the session's zone; the values are the same instants.
        table = pa.Table.from_batches(received).rename_columns(schema.names).cast(schema)
        parts, null_keys = encoder(table)
        if null_keys and not parts:
            parts = [(0, encoder.empty(table))]
        origin = _partition()
        for number, (partition, part) in enumerate(parts):
            dropped = null_keys if number == 0 else 0
            for piece in _pieces(part):
                yield _batch(Message(partition, origin, encoder.stream, dropped, _pack(piece)))
                dropped = 0

    return run


def stage_task(
    program: Program, stage: int, store: Store, writer: OutputWriter
) -> Callable[[Batches], Batches]:
    """The function that runs one stage of an epoch in one engine partition."""
    mine = {i.id for f in program.layout.fragments if f.stage == stage for i in f.inputs}

    def run(batches: Batches) -> Batches:
        begin = time.perf_counter()
        partition = _partition()
        here: list[Message] = []
        for batch in batches:
            for message in _messages(batch):
                if message.input in mine:
                    here.append(message)
                else:
                    yield _batch(message)
        # Shuffles deliver in any order; running an epoch again must see the same rows in the same order.
        here.sort(key=lambda message: (message.input, message.origin))
        arrivals: dict[str, list[pa.Table]] = {}
        counts: dict[str, InputCount] = {}
        for message in here:
            arrivals.setdefault(message.input, []).append(_unpack(message.blob))
            if message.null_keys:
                counts[message.input] = counts.get(message.input, InputCount()) + InputCount(
                    null_key=message.null_keys
                )
        unpacked = time.perf_counter()
        try:
            report, outgoing = run_partition(program, stage, partition, arrivals, store, writer)
        except MidstreamError as error:
            # As a message it reaches the driver as what it is; Spark would pass on a text, after retries.
            yield _batch(Message(partition, partition, ERROR, 0, msgspec.json.encode(error_fields(error))))
            return
        report += Report(counts=counts, millis={"receive": 1000 * (unpacked - begin)})
        for rows in outgoing:
            for piece in _pieces(rows.table):
                yield _batch(Message(rows.partition, partition, rows.input, 0, _pack(piece)))
        yield _batch(Message(partition, partition, REPORT, 0, encode_report(report)))

    return run


def _partition() -> int:
    """The number of the running task's partition."""
    context = TaskContext.get()
    if context is None:
        raise InternalError("a task must run inside Spark", got="no task context")
    return context.partitionId()


def _pieces(table: pa.Table) -> Iterator[pa.Table]:
    rows = max(1, table.num_rows * _PIECE // max(table.nbytes, 1))
    for start in range(0, max(table.num_rows, 1), rows):
        yield table.slice(start, rows)


def _pack(table: pa.Table) -> pa.Buffer:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue()


def _unpack(blob: bytes | pa.Buffer) -> pa.Table:
    return pa.ipc.open_stream(blob).read_all()


def _batch(message: Message) -> pa.RecordBatch:
    values = (message.partition, message.origin, message.input, message.null_keys)
    columns = [pa.array([value], field.type) for value, field in zip(values, _ARROW, strict=False)]
    blob = pa.py_buffer(message.blob)
    offsets = pa.array([0, blob.size], pa.int32()).buffers()[1]
    columns.append(pa.Array.from_buffers(pa.binary(), 1, [None, offsets, blob]))
    return pa.RecordBatch.from_arrays(columns, schema=_ARROW)


def _messages(batch: pa.RecordBatch) -> Iterator[Message]:
    blobs = batch.column(4)
    for row in range(batch.num_rows):
        yield Message(
            batch.column(0)[row].as_py(),
            batch.column(1)[row].as_py(),
            batch.column(2)[row].as_py(),
            batch.column(3)[row].as_py(),
            blobs[row].as_buffer(),
        )
