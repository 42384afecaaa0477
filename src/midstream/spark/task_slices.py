"""The slices of a program on their way to tasks: each gets those that its partitions read, and no others.

The rest of a program is the same for all tasks, does not grow with the state or the number of partitions, and
travels in Spark's closures.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import chain

import msgspec

from midstream.engine.program import Program
from midstream.plan.state_id import StateId, decode_state_id, encode_state_id
from midstream.spark.messages import AddressedMessage, SlicesMessage
from midstream.spark.task_ranges import TaskRanges
from midstream.state.slices import Slice


class _OwnSlices(msgspec.Struct, frozen=True, array_like=True):
    slices: list[Slice]
    written: list[bool]
    """Whether tasks of this run have written each."""


_ENCODER = msgspec.msgpack.Encoder(enc_hook=encode_state_id)
_DECODER = msgspec.msgpack.Decoder(_OwnSlices, dec_hook=decode_state_id)


def without_slices(program: Program) -> Program:
    """What all tasks have in common."""
    replay = program.replay
    if replay is not None:
        replay = replace(replay, source=without_slices(replay.source))
    # What the other box does is in a job of its own.
    return replace(program.with_slices((), ()), replay=replay, replacement=None)


def with_own_slices(program: Program, blob: bytes) -> Program:
    """The program of a task, given the slices that were encoded for it."""
    own = _DECODER.decode(blob)
    written = (slice_.name for slice_, is_written in zip(own.slices, own.written, strict=True) if is_written)
    return program.with_slices(own.slices, written)


def slice_messages(program: Program, ranges: TaskRanges) -> list[AddressedMessage]:
    """For each stage and task the slices that it needs, if only to say that there are none."""
    stages = _stages_of_states(program)
    needed: list[list[list[Slice]]] = [[[] for _ in range(ranges.tasks)] for _ in range(program.stages)]
    for slice_, readers in _slices_and_tasks(program, ranges):
        for stage in stages.get(slice_.owner.state, ()):
            for task in readers:
                needed[stage][task].append(slice_)
    return [
        (task, SlicesMessage(stage, _encode(program, slices)))
        for stage, tasks in enumerate(needed)
        for task, slices in enumerate(tasks)
    ]


def slices_by_task(program: Program, ranges: TaskRanges) -> list[bytes]:
    """For each task all slices of its partitions, for a task that runs before the first stage."""
    tasks: list[list[Slice]] = [[] for _ in range(ranges.tasks)]
    for slice_, readers in _slices_and_tasks(program, ranges):
        for task in readers:
            tasks[task].append(slice_)
    return [_encode(program, slices) for slices in tasks]


def _slices_and_tasks(program: Program, ranges: TaskRanges) -> Iterator[tuple[Slice, list[int]]]:
    """All slices, each with the tasks that run partitions which read it."""
    tasks_of: dict[tuple[int, ...], list[int]] = {}
    for slice_ in chain.from_iterable(program.slices.values()):
        readers = program.places.readers(slice_)
        if readers not in tasks_of:
            tasks_of[readers] = sorted({ranges.task_of(partition) for partition in readers})
        yield slice_, tasks_of[readers]


def _encode(program: Program, slices: list[Slice]) -> bytes:
    written = program.run.written
    return _ENCODER.encode(_OwnSlices(slices, [slice_.name in written for slice_ in slices]))


def _stages_of_states(program: Program) -> dict[StateId, set[int]]:
    """The stages in which each state is used; that of the results too, which may be deferred."""
    stages: dict[StateId, set[int]] = {}
    for fragment in program.fragments:
        results = [program.layout.root] if fragment in program.layout.result_fragments else []
        for state in (*fragment.inputs_by_id, *fragment.arrangements, *results):
            stages.setdefault(state, set()).add(fragment.stage)
    return stages
