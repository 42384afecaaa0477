"""One engine partition's part of an epoch: run the steps of a stage, write new slices and results, report.

Both shells use it, Spark's tasks and the in-process runner; only how rows get here and how reports get
back differs between them.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from functools import partial
from typing import Protocol

import pyarrow as pa

from midstream.engine.error_context import error_context
from midstream.engine.move_states import moved_rows
from midstream.engine.program import NewSlice, Program
from midstream.engine.routed_rows import Arrivals, RoutedRows
from midstream.engine.step import run_step
from midstream.engine.work import WorkCounts
from midstream.plan.layout import Fragment
from midstream.protocol.report import Report
from midstream.runtime.crash_points import crash_point
from midstream.state.manifest import OutputFile
from midstream.state.slices import Slice
from midstream.storage.output_table import TaskId
from midstream.storage.slice_files import SliceFiles, slice_files
from midstream.storage.store import Store


class OutputWriter(Protocol):
    """Stages results and late rows. Called by the task that has the rows."""

    def results(self, task: TaskId, rows: pa.Table | None) -> list[OutputFile]:
        """Stage results; None if the fragment of the plan's root has none in this partition."""

    def late(self, task: TaskId, rows: Mapping[str, pa.Table]) -> list[OutputFile]:
        """Stage the late rows of a fragment, by stream."""


def _write(files: SliceFiles, new: NewSlice) -> Slice:
    crash_point("before a slice is written")
    with error_context(streams=new.slice.owner.state.streams, columns=new.table.column_names):
        written = files.write(new)
    crash_point("after a slice is written")
    return written


def _streams(fragment: Fragment) -> list[str]:
    return list(
        dict.fromkeys(stream for fragment_input in fragment.inputs for stream in fragment_input.streams)
    )


class _Reader:
    """Opens each slice at most once in a step, and measures the time that takes."""

    def __init__(self, program: Program, store: Store) -> None:
        self.seconds = 0.0
        self._files = slice_files(store, program.run)
        self._ours = program.run.written
        self._opened: dict[str, pa.Table] = {}

    def __call__(self, slice_: Slice) -> pa.Table:
        if slice_.name not in self._opened:
            begin = time.perf_counter()
            self._opened[slice_.name] = self._files.open(slice_, ours=slice_.name in self._ours)
            self.seconds += time.perf_counter() - begin
        return self._opened[slice_.name]


def move_states(program: Program, partition: int, store: Store) -> list[RoutedRows]:
    """Before the first stage: rows of states that other engine partitions need from now on."""
    with error_context("moving states", batch=program.epoch):
        return list(moved_rows(program, partition, _Reader(program, store)))


def run_partition(
    program: Program,
    stage: int,
    partition: int,
    arrivals: Arrivals,
    store: Store,
    writer: OutputWriter,
) -> tuple[Report, list[RoutedRows]]:
    """Run every fragment of ``stage`` in this partition."""
    report = Report()
    outgoing: list[RoutedRows] = []
    files = slice_files(store, program.run)
    if stage == 0:
        files.forget_all_but(s for owned in program.slices.values() for s in owned)
    for fragment in program.layout.fragments:
        if fragment.stage != stage:
            continue
        task = TaskId(epoch=program.epoch, partition=partition, fragment=fragment.id)
        reader = _Reader(program, store)
        begin = time.perf_counter()
        within = partial(error_context, batch=program.epoch, streams=_streams(fragment))
        with within("a step"):
            step = run_step(program, fragment, partition, arrivals, reader)
        joined = time.perf_counter()
        with within("writing a state"):
            slices = tuple(_write(files, new) for new in step.slices)
        written = time.perf_counter()
        with within("staging late rows", streams=step.late):
            outputs = writer.late(task, step.late) if step.late else []
        if any(node.id == program.layout.root for node in fragment.nodes):
            with within("staging results", columns=program.query.output_schema.names):
                outputs += writer.results(task, step.results)
            crash_point("after results are staged")
        done = time.perf_counter()
        report += Report(
            slices=slices,
            replaced=step.replaced,
            outputs=tuple(outputs),
            counts=dict(step.counts),
            results=step.results.num_rows if step.results is not None else 0,
            work=sum(step.work.values(), WorkCounts()),
            work_by_plan=dict(step.work),
            keys=dict(step.keys),
            produced=dict(step.produced),
            millis={
                "open": 1000 * reader.seconds,
                "join": 1000 * (joined - begin - reader.seconds),
                "state": 1000 * (written - joined),
                "stage": 1000 * (done - written),
            },
        )
        outgoing += step.outgoing
    return report, outgoing
