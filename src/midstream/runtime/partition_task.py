"""An engine partition's part of an epoch: run the steps of a stage, write new slices and results, report.

Both shells use it, Spark's tasks and the in-process runner; only how rows get here and how reports get
back differs between them.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

import pyarrow as pa
from msgspec.structs import replace

from midstream.adapt.cost import work_in_units
from midstream.aggregate.run_fragment import run_fragment
from midstream.engine.error_context import error_context
from midstream.engine.move_states import moved_rows
from midstream.engine.program import NewSlice, Program, StepOutput
from midstream.engine.replay import replayed_rows
from midstream.engine.routed_rows import Arrivals, RoutedRows
from midstream.engine.work import WorkCounts
from midstream.plan.layout import Fragment
from midstream.protocol.report import Report, merge_reports
from midstream.runtime.crash_points import crash_point
from midstream.state.manifest import OutputFile
from midstream.state.slices import Slice
from midstream.storage.output_table import FragmentRunId
from midstream.storage.slice_files import EncodedSlice, slice_files
from midstream.storage.store import Store

# What the partitions of a task write is kept until it is so large, and then written together.
_WRITTEN_TOGETHER_BYTES = 32 << 20
_WRITTEN_TOGETHER_FILES = 256


class OutputWriter(Protocol):
    """Stages results and late rows. Called by the task that has the rows."""

    def results(self, task: FragmentRunId, rows: pa.Table | None) -> list[OutputFile]:
        """Stage results; None if the fragment of the plan's root has none in these partitions."""

    def late(self, task: FragmentRunId, rows: Mapping[str, pa.Table]) -> list[OutputFile]:
        """Stage the late rows of a fragment, by stream."""


class _Reader:
    """Opens each slice at most once in a step, and measures the time that takes."""

    def __init__(self, program: Program, store: Store, *, is_placed: bool) -> None:
        self.seconds = 0.0
        self.bytes = 0
        """The size of what was opened; of a slice that several partitions read, an equal share."""
        self._places = program.places if is_placed else None
        self._files = slice_files(store, program.run)
        self._ours = program.run.written
        # With a budget, what is not used must not take up memory.
        self._sparsely = program.memory is not None
        self._opened: dict[str, pa.Table] = {}

    def __call__(self, slice_: Slice) -> pa.Table:
        if slice_.name not in self._opened:
            begin = time.perf_counter()
            self._opened[slice_.name] = self._files.open(
                slice_, ours=slice_.name in self._ours, sparsely=self._sparsely
            )
            self.seconds += time.perf_counter() - begin
            readers = len(self._places.readers(slice_)) if self._places is not None else 1
            self.bytes += slice_.bytes // readers
        return self._opened[slice_.name]


def move_states(program: Program, partition: int, store: Store) -> Iterator[RoutedRows]:
    """Before the first stage: rows of states that other engine partitions need from now on."""
    with error_context("moving states", batch=program.epoch):
        yield from moved_rows(program, partition, _Reader(program, store, is_placed=True))
    if program.replay is not None:
        reader = _Reader(program.replay.source, store, is_placed=True)
        with error_context("replaying rows", batch=program.epoch):
            yield from replayed_rows(program, partition, reader)


Clock = Callable[[], float]
"""Seconds since some moment."""


def run_partition(
    program: Program,
    stage: int,
    partition: int,
    arrivals: Arrivals,
    store: Store,
    writer: OutputWriter,
    clock: Clock | None = None,
) -> tuple[Report, list[RoutedRows]]:
    """Run every fragment of ``stage`` in one partition."""
    run = StageRun(program, stage, store, writer, clock)
    outgoing = run.run(partition, arrivals)
    return run.finish(), outgoing


@dataclass
class _Unstaged:
    """Rows of a fragment that are to be staged, of several partitions; the file is named after the first."""

    task: FragmentRunId
    fragment: Fragment
    results: list[pa.Table] = field(default_factory=list)
    late: dict[str, list[pa.Table]] = field(default_factory=dict)


class StageRun:
    """A stage in some engine partitions, one after the other.

    What they write is written together, since each file that is synced by itself takes longer than all else
    about a small one, and readers need not open a file of results per partition. So no more than one
    partition is in memory, and a bounded amount of what others have written.
    """

    def __init__(
        self, program: Program, stage: int, store: Store, writer: OutputWriter, clock: Clock | None = None
    ) -> None:
        """``clock`` measures what the work costs; without one, nothing is measured."""
        self._clock = clock
        self._cpu_seconds = 0.0
        self._program = program
        self._fragments = [fragment for fragment in program.fragments if fragment.stage == stage]
        self._store = store
        self._writer = writer
        self._files = slice_files(store, program.run)
        self._reports: list[Report] = []
        self._seconds: defaultdict[str, float] = defaultdict(float)
        self._unwritten: list[EncodedSlice] = []
        self._unstaged: dict[int, _Unstaged] = {}
        self._bytes = 0
        self._touched_bytes = 0

    def run(self, partition: int, arrivals: Arrivals) -> list[RoutedRows]:
        """Run every fragment in a partition; gives rows for fragments of other stages."""
        with self._measured():
            return self._run(partition, arrivals)

    def _run(self, partition: int, arrivals: Arrivals) -> list[RoutedRows]:
        outgoing: list[RoutedRows] = []
        received = dict(arrivals)
        for fragment in self._fragments:
            if not self._program.places.runs_at(partition, fragment.site):
                continue
            step = self._step(fragment, partition, received)
            self._collect(fragment, partition, step)
            for rows in step.outgoing:
                if rows.kind == "results" and self._program.collector in self._fragments:
                    received[rows.input, rows.kind] = [*received.get((rows.input, rows.kind), ()), rows.table]
                else:
                    outgoing.append(rows)
        if self._bytes > _WRITTEN_TOGETHER_BYTES or len(self._unwritten) > _WRITTEN_TOGETHER_FILES:
            self._write()
        return outgoing

    def finish(self) -> Report:
        """Write what is not written yet; gives the report of all partitions."""
        with self._measured():
            self._write()
        millis = {part: 1000 * seconds for part, seconds in self._seconds.items()}
        return replace(
            merge_reports(self._reports),
            millis=millis,
            cpu_seconds={} if self._clock is None else {"join": self._cpu_seconds},
            touched_bytes=self._touched_bytes,
        )

    def _step(self, fragment: Fragment, partition: int, arrivals: Arrivals) -> StepOutput:
        reader = _Reader(self._program, self._store, is_placed=bool(fragment.key))
        begin = time.perf_counter()
        with self._within(fragment)("a step"):
            step = run_fragment(self._program, fragment, partition, arrivals, reader)
        self._touched_bytes += reader.bytes
        self._seconds["open"] += reader.seconds
        self._seconds["join"] += time.perf_counter() - begin - reader.seconds
        return step

    def _collect(self, fragment: Fragment, partition: int, step: StepOutput) -> None:
        """Keep what a step writes, and report the rest."""
        with self._timed("state"), self._within(fragment)("writing a state"):
            encoded = [self._encode(new) for new in step.slices]
        self._unwritten += encoded
        self._bytes += sum(each.data.size for each in encoded)
        number = self._program.fragment_offset + fragment.id
        task = FragmentRunId(epoch=self._program.epoch, partition=partition, fragment=number)
        unstaged = self._unstaged.setdefault(fragment.id, _Unstaged(task, fragment))
        if step.results is not None:
            unstaged.results.append(step.results)
            self._bytes += step.results.nbytes
        for stream, rows in step.late.items():
            if stream in self._program.late_rows_elsewhere:
                continue
            unstaged.late.setdefault(stream, []).append(rows)
            self._bytes += rows.nbytes
        work = sum(step.work.values(), WorkCounts())
        report = Report(
            slices=tuple(each.slice for each in encoded),
            replaced=step.replaced,
            counts=dict(step.counts),
            results=step.results.num_rows if step.results is not None else 0,
            work=work,
            unplaced_work=WorkCounts() if fragment.key else work,
            steps=1,
            # What no key places is in one partition, whoever has the groups.
            partition_work={partition: work_in_units(work)} if fragment.key else {},
            work_by_plan=dict(step.work),
            keys=dict(step.keys),
            produced=dict(step.produced),
            flows=dict(step.flows),
        )
        self._reports.append(report)

    def _encode(self, new: NewSlice) -> EncodedSlice:
        crash_point("before a slice is written")
        with error_context(streams=new.slice.owner.state.streams, columns=new.table.schema.names):
            return self._files.encode(new)

    def _write(self) -> None:
        if self._unwritten:
            with self._timed("state"):
                self._files.write(self._unwritten)
                for _ in self._unwritten:
                    crash_point("after a slice is written")
        with self._timed("stage"):
            outputs = [output for unstaged in self._unstaged.values() for output in self._stage(unstaged)]
        self._reports.append(Report(outputs=tuple(outputs)))
        self._unwritten, self._unstaged, self._bytes = [], {}, 0

    def _stage(self, unstaged: _Unstaged) -> list[OutputFile]:
        outputs: list[OutputFile] = []
        within = self._within(unstaged.fragment)
        if unstaged.late:
            with within("staging late rows", streams=unstaged.late):
                late = {stream: pa.concat_tables(parts) for stream, parts in unstaged.late.items()}
                outputs += self._writer.late(unstaged.task, late)
        if self._program.results_leave_from(unstaged.fragment):
            with within("staging results", columns=self._program.query.output_schema.names):
                results = pa.concat_tables(unstaged.results) if unstaged.results else None
                outputs += self._writer.results(unstaged.task, results)
            crash_point("after results are staged")
        return outputs

    def _within(self, fragment: Fragment) -> Callable[..., AbstractContextManager[None]]:
        return partial(error_context, batch=self._program.epoch, streams=fragment.streams)

    @contextmanager
    def _measured(self) -> Iterator[None]:
        begin = 0.0 if self._clock is None else self._clock()
        yield
        if self._clock is not None:
            self._cpu_seconds += self._clock() - begin

    @contextmanager
    def _timed(self, part: str) -> Iterator[None]:
        begin = time.perf_counter()
        yield
        self._seconds[part] += time.perf_counter() - begin
