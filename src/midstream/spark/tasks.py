"""What runs in Spark's tasks after a shuffle: a stage of the step in one engine partition.

Reports of earlier stages and rows for later ones pass through a stage unread.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator

import msgspec
import pyarrow as pa

from midstream.engine.program import InputCount, Program
from midstream.errors import MidstreamError, error_fields
from midstream.protocol.report import Report, encode_report
from midstream.spark.messages import ERROR, REPORT, Addressed, Message, pack, unpack
from midstream.storage.partition import OutputWriter, run_partition
from midstream.storage.store import Store


def stage_task(
    program: Program, stage: int, store: Store, writer: OutputWriter
) -> Callable[[int, Iterable[Addressed]], Iterator[Addressed]]:
    """The function that runs one stage of an epoch in one engine partition."""
    mine = {i.id for f in program.layout.fragments if f.stage == stage for i in f.inputs}

    def run(partition: int, arriving: Iterable[Addressed]) -> Iterator[Addressed]:
        begin = time.perf_counter()
        here: list[Message] = []
        for target, message in arriving:
            if message.input in mine:
                here.append(message)
            else:
                yield target, message
        # Shuffles deliver in any order; running an epoch again must see the same rows in the same order.
        here.sort(key=lambda message: (message.input, message.origin))
        arrivals: dict[str, list[pa.Table]] = {}
        counts: dict[str, InputCount] = {}
        for message in here:
            arrivals.setdefault(message.input, []).append(unpack(message.blob))
            if message.null_keys:
                count = InputCount(null_key=message.null_keys)
                counts[message.input] = counts.get(message.input, InputCount()) + count
        received = time.perf_counter()
        try:
            report, outgoing = run_partition(program, stage, partition, arrivals, store, writer)
        except MidstreamError as error:
            # As a message it reaches the driver as what it is; Spark would pass on a text, after retries.
            fields = msgspec.json.encode(error_fields(error))
            yield partition, Message(partition, ERROR, 0, pa.py_buffer(fields))
            return
        for rows in outgoing:
            for blob in pack(rows.table):
                yield rows.partition, Message(partition, rows.input, 0, blob)
        report += Report(counts=counts, millis={"receive": 1000 * (received - begin)})
        yield partition, Message(partition, REPORT, 0, pa.py_buffer(encode_report(report)))

    return run
