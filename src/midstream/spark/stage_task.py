"""The tasks of Spark after a shuffle: each runs a stage of an epoch in one engine partition.

Reports of earlier stages and rows for later ones are passed on.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator

import pyarrow as pa

from midstream.engine.program import Program, StreamCounts
from midstream.engine.routed_rows import RowsKind
from midstream.plan.state_id import StateId
from midstream.protocol.report import Report, encode_report
from midstream.runtime.partition_task import OutputWriter, move_states, run_partition
from midstream.spark.messages import (
    AddressedMessage,
    ControlMessage,
    RowsMessage,
    addressed,
    errors_as_messages,
    unpack,
)
from midstream.storage.store import Store


def stage_task(
    program: Program, stage: int, store: Store, writer: OutputWriter
) -> Callable[[int, Iterable[AddressedMessage]], Iterator[AddressedMessage]]:
    """The function that runs one stage of an epoch in one engine partition."""
    own = _inputs(program, {stage})
    earlier = _inputs(program, set(range(stage)))
    later = _inputs(program, set(range(stage + 1, program.layout.stages)))

    def run(partition: int, messages: Iterable[AddressedMessage]) -> Iterator[AddressedMessage]:
        begin = time.perf_counter()
        received: list[RowsMessage] = []
        for target, message in messages:
            if isinstance(message, ControlMessage):
                yield target, message
                continue
            if message.input in own:
                received.append(message)
            if message.input in later or message.input not in own:
                yield target, message
        # Shuffles deliver in any order; every attempt of an epoch must have the rows in the same order.
        received.sort(key=lambda message: (message.input, message.kind, message.origin))
        arrivals: dict[tuple[StateId, RowsKind], list[pa.Table]] = {}
        counts: dict[str, StreamCounts] = {}
        for message in received:
            arrivals.setdefault((message.input, message.kind), []).append(unpack(message.blob))
            if message.null_keys and message.input not in earlier:
                (stream,) = message.input.streams
                count = StreamCounts(null_key=message.null_keys)
                counts[stream] = counts.get(stream, StreamCounts()) + count
        unpacked = time.perf_counter()
        report, outgoing = run_partition(program, stage, partition, arrivals, store, writer)
        yield from addressed(outgoing, partition)
        report += Report(counts=counts, millis={"receive": 1000 * (unpacked - begin)})
        yield partition, ControlMessage(partition, "report", pa.py_buffer(encode_report(report)))

    return lambda partition, messages: errors_as_messages(
        "a step", run(partition, messages), partition, program.epoch
    )


def move_task(program: Program, store: Store) -> Callable[[int, Iterable[int]], Iterator[AddressedMessage]]:
    """The function that sends the rows of states that move away from an engine partition."""

    def run(partition: int, numbers: Iterable[int]) -> Iterator[AddressedMessage]:
        for _ in numbers:
            yield from addressed(move_states(program, partition, store), partition)

    return lambda partition, numbers: errors_as_messages(
        "moving states", run(partition, numbers), partition, program.epoch
    )


def _inputs(program: Program, stages: set[int]) -> set[StateId]:
    """The inputs of the fragments of some stages."""
    fragments = (fragment for fragment in program.layout.fragments if fragment.stage in stages)
    return {fragment_input.id for fragment in fragments for fragment_input in fragment.inputs}
