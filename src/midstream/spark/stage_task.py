"""What runs in Spark's tasks after a shuffle: a stage of the step in one engine partition.

Reports of earlier stages and rows for later ones pass through a stage unread.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator

import pyarrow as pa

from midstream.engine.program import InputCount, Program
from midstream.engine.send import STATE, WAITING
from midstream.plan.layout import StateId, streams_of
from midstream.protocol.report import Report, encode_report
from midstream.runtime.partition_task import OutputWriter, move_states, run_partition
from midstream.spark.messages import REPORT, Addressed, Message, addressed, errors_as_messages, unpack
from midstream.storage.store import Store


def stage_task(
    program: Program, stage: int, store: Store, writer: OutputWriter
) -> Callable[[int, Iterable[Addressed]], Iterator[Addressed]]:
    """The function that runs one stage of an epoch in one engine partition."""
    mine = _inputs(program, {stage})
    earlier = _inputs(program, set(range(stage)))
    later = _inputs(program, set(range(stage + 1, program.layout.stages)))

    def run(partition: int, arriving: Iterable[Addressed]) -> Iterator[Addressed]:
        begin = time.perf_counter()
        here: list[Message] = []
        for target, message in arriving:
            if message.input in mine:
                here.append(message)
            if message.input in later or message.input not in mine:
                yield target, message
        # Shuffles deliver in any order; running an epoch again must see the same rows in the same order.
        here.sort(key=lambda message: (message.input, message.origin))
        arrivals: dict[str, list[pa.Table]] = {}
        counts: dict[str, InputCount] = {}
        for message in here:
            arrivals.setdefault(message.input, []).append(unpack(message.blob))
            if message.null_keys and message.input not in earlier:
                (stream,) = streams_of(message.input)
                count = InputCount(null_key=message.null_keys)
                counts[stream] = counts.get(stream, InputCount()) + count
        received = time.perf_counter()
        report, outgoing = run_partition(program, stage, partition, arrivals, store, writer)
        yield from addressed(outgoing, partition)
        report += Report(counts=counts, millis={"receive": 1000 * (received - begin)})
        yield partition, Message(partition, REPORT, 0, pa.py_buffer(encode_report(report)))

    return lambda partition, arriving: errors_as_messages(
        "a step", run(partition, arriving), partition, program.epoch
    )


def move_task(program: Program, store: Store) -> Callable[[int, Iterable[int]], Iterator[Addressed]]:
    """The function that sends the rows of states that move away from an engine partition."""

    def run(partition: int, numbers: Iterable[int]) -> Iterator[Addressed]:
        for _ in numbers:
            yield from addressed(move_states(program, partition, store), partition)

    return lambda partition, numbers: errors_as_messages(
        "moving states", run(partition, numbers), partition, program.epoch
    )


def _inputs(program: Program, stages: set[int]) -> set[StateId]:
    """What the fragments of some stages take in, as rows that arrive or that their states lack."""
    found = {i.id for f in program.layout.fragments if f.stage in stages for i in f.inputs}
    return found | {f"{STATE}{name}{waiting}" for name in found for waiting in ("", WAITING)}
