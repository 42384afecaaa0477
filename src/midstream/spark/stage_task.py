"""The tasks of Spark after a shuffle: each runs a stage of an epoch in some engine partitions, one by one.

Reports of earlier stages, and rows and slices for later ones, are passed on.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

import pyarrow as pa

from midstream.engine.program import Program, Replay, StreamCounts
from midstream.engine.routed_rows import RowsKind
from midstream.errors import InternalError
from midstream.plan.state_id import StateId
from midstream.protocol.report import Report, encode_report, merge_reports
from midstream.runtime.partition_task import OutputWriter, StageRun, move_states
from midstream.spark.messages import (
    AddressedMessage,
    ControlMessage,
    Outbox,
    RowsMessage,
    SlicesMessage,
    SourceMessage,
    errors_as_messages,
    links_report,
    unpack,
)
from midstream.spark.site_tasks import ran_elsewhere
from midstream.spark.task_ranges import TaskRanges
from midstream.spark.task_slices import with_own_slices, without_slices
from midstream.storage.store import Store

_Task = Callable[[int, Iterable[AddressedMessage]], Iterator[AddressedMessage]]
_Arrivals = dict[tuple[StateId, RowsKind], list[pa.Table]]


def stage_task(program: Program, stage: int, ranges: TaskRanges, store: Store, writer: OutputWriter) -> _Task:
    """The function that runs one stage of an epoch in the engine partitions of a task."""
    own = _inputs(program, {stage})
    earlier = _inputs(program, set(range(stage)))
    later = _inputs(program, set(range(stage + 1, program.stages)))
    # The function is sent to every task: it must not have the slices of all.
    common = without_slices(program)

    def run(task: int, messages: Iterable[AddressedMessage]) -> Iterator[AddressedMessage]:
        begun = time.time()
        begin, cpu_begin = time.perf_counter(), time.process_time()
        received: list[RowsMessage] = []
        slices: list[bytes] = []
        for target, message in messages:
            match message:
                case RowsMessage():
                    if message.input in own:
                        received.append(message)
                    if message.input in later or message.input not in own:
                        yield target, message
                case SlicesMessage() if message.stage == stage:
                    slices.append(message.blob)
                case _:
                    yield target, message
        if len(slices) != 1:
            raise InternalError("a task must get its slices once", got=f"{len(slices)} times")
        stage_run = StageRun(with_own_slices(common, slices[0]), stage, store, writer, time.process_time)
        arrivals, counts = _by_partition(received, earlier)
        received.clear()
        received_report = Report(
            counts=counts,
            millis={"receive": 1000 * (time.perf_counter() - begin)},
            cpu_seconds={"send": time.process_time() - cpu_begin},
            receives=1,
            received_rows=sum(
                t.num_rows for tables in arrivals.values() for of in tables.values() for t in of
            ),
        )
        outbox = Outbox(ranges, source=ranges.site_of(task))
        for partition in ranges.partitions_of(task):
            outgoing = stage_run.run(partition, arrivals.pop(partition, {}))
            yield from outbox.add(outgoing, partition)
        yield from outbox.flush()
        finished = stage_run.finish()
        sent = Report(
            links=outbox.links,
            elsewhere=ran_elsewhere(ranges.site_of(task), ranges.hosts),
            stage_times={stage: (begun, time.time())},
        )
        report = merge_reports([received_report, finished, sent])
        yield task, ControlMessage(task, "report", pa.py_buffer(encode_report(report)))

    return lambda task, messages: errors_as_messages("a step", run(task, messages), task, common.epoch)


def move_task(
    program: Program, ranges: TaskRanges, store: Store
) -> Callable[[int, Iterable[bytes]], Iterator[SourceMessage]]:
    """The function that sends the rows of states that move away from the engine partitions of a task."""
    common = without_slices(program)

    def run(task: int, slices: Iterable[bytes]) -> Iterator[SourceMessage]:
        outbox = Outbox(ranges, source=ranges.site_of(task))
        for own in slices:
            own_program = with_own_slices(common, own)
            for partition in ranges.partitions_of(task):
                yield from outbox.add(move_states(own_program, partition, store), partition)
        yield from outbox.flush()
        yield from links_report(outbox, task)

    return lambda task, slices: errors_as_messages("moving states", run(task, slices), task, common.epoch)


def replay_task(
    program: Program, replay: Replay, senders: TaskRanges, ranges: TaskRanges, store: Store
) -> Callable[[int, Iterable[bytes]], Iterator[SourceMessage]]:
    """The function that sends the rows that an old box has stored in the engine partitions of a task."""
    common, source = without_slices(program), without_slices(replay.source)

    def run(task: int, slices: Iterable[bytes]) -> Iterator[SourceMessage]:
        outbox = Outbox(ranges)
        for own in slices:
            own_replay = replace(replay, source=with_own_slices(source, own))
            own_program = replace(common, replay=own_replay)
            for partition in senders.partitions_of(task):
                yield from outbox.add(move_states(own_program, partition, store), partition)
        yield from outbox.flush()

    return lambda task, slices: errors_as_messages("replaying rows", run(task, slices), task, common.epoch)


def _by_partition(
    received: list[RowsMessage], earlier: set[StateId]
) -> tuple[dict[int, _Arrivals], dict[str, StreamCounts]]:
    """The rows for each engine partition, and how many had null keys, unless that was counted before."""
    # Shuffles deliver in any order; every attempt of an epoch must have the rows in the same order.
    received.sort(key=lambda message: (message.input, message.kind, message.origin))
    arrivals: dict[int, _Arrivals] = {}
    counts: dict[str, StreamCounts] = {}
    for message in received:
        for partition, rows in unpack(message.blob).by_partition():
            arrivals.setdefault(partition, {}).setdefault((message.input, message.kind), []).append(rows)
        if message.null_keys and message.input not in earlier:
            (stream,) = message.input.streams
            count = StreamCounts(null_key=message.null_keys)
            counts[stream] = counts.get(stream, StreamCounts()) + count
    return arrivals, counts


def _inputs(program: Program, stages: set[int]) -> set[StateId]:
    """What enters the fragments of some stages: their inputs, and the results that one collects."""
    fragments = [fragment for fragment in program.fragments if fragment.stage in stages]
    inputs = {fragment_input.id for fragment in fragments for fragment_input in fragment.inputs}
    return inputs | {program.layout.root} if program.collector in fragments else inputs
