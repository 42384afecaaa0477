"""Faults inside Spark's tasks: each strikes once, in one epoch and at one crash point, and leaves a mark."""

import os
import resource
import signal
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import NamedTuple
from unittest.mock import patch

import numpy as np
from pyspark.cloudpickle import register_pickle_by_value

from midstream.engine import joiner
from midstream.engine.index_rows import IndexRows
from midstream.engine.probe import candidate_pairs
from midstream.engine.program import Program
from midstream.query.window import Windows
from midstream.runtime.crash_points import POINTS, crash_hook
from midstream.runtime.partition_task import OutputWriter
from midstream.spark import execution
from midstream.spark.messages import AddressedMessage
from midstream.spark.stage_task import stage_task
from midstream.spark.task_ranges import TaskRanges
from midstream.storage.store import Store

# Which process reaches which crash point. New points count as the driver's, whose test fails if they are not.
IN_TASKS = ("before a slice is written", "after a slice is written", "after results are staged")
IN_DRIVERS = tuple(point for point in POINTS if point not in IN_TASKS)
IN_JOIN = "in a join"
"""Not one of the engine's crash points: the task is about to join many rows, which takes memory."""

_MANY_ROWS = 100
_HEADROOM = 1 << 18
_BALLAST = 1 << 16

# Workers need not be able to import the tests.
register_pickle_by_value(sys.modules[__name__])


class Fault(NamedTuple):
    """What happens to the first task that reaches a point in an epoch."""

    kind: str
    epoch: int
    point: str

    @property
    def mark(self) -> str:
        return f"{self.epoch} {self.kind} {self.point}"


def struck(marks: Path) -> set[str]:
    """The faults that have struck."""
    return {path.name for path in marks.iterdir()} if marks.is_dir() else set()


def struck_migrations(marks: Path) -> dict[str, str]:
    """The faults that have struck, each with the migration that was under way."""
    return {path.name: path.read_text() for path in marks.iterdir()}


def failing_tasks(marks: Path, faults: Sequence[Fault]) -> AbstractContextManager[object]:
    """Inject faults into the tasks of this process's queries; ``marks`` is a folder for a file per fault."""
    marks.mkdir(exist_ok=True)

    def stage_task_that_fails(
        program: Program, stage: int, ranges: TaskRanges, store: Store, writer: OutputWriter
    ) -> Callable[[int, Iterable[AddressedMessage]], Iterator[AddressedMessage]]:
        run = stage_task(program, stage, ranges, store, writer)
        due = [fault for fault in faults if fault.epoch == program.epoch]
        migration = migration_of(program)

        def task(number: int, arriving: Iterable[AddressedMessage]) -> Iterator[AddressedMessage]:
            with ExitStack() as until_its_end:

                def reached(point: str) -> None:
                    for fault in due:
                        if fault.point == point and _first(marks / fault.mark, migration):
                            _STRIKE[fault.kind](until_its_end)

                until_its_end.enter_context(crash_hook(reached))
                until_its_end.enter_context(_large_joins(reached))
                yield from run(number, arriving)

        return task

    return patch.object(execution, "stage_task", stage_task_that_fails)


def migration_of(program: Program) -> str:
    """A description of the migration that an epoch is part of, if any."""
    step = program.migration_step
    if step is None:
        return ""
    migration = step.migration
    ends = ", ends" if step.ends else ""
    waits = " that waits" if migration.strategy == "hybrid" and not migration.background else ""
    return f"{migration.strategy}{waits}, {'begins' if step.begins else 'goes on'}{ends}"


def _large_joins(reached: Callable[[str], None]) -> AbstractContextManager[object]:
    """Joins of many rows are reported before they begin."""

    def reported(rows: IndexRows, run: IndexRows, windows: Windows) -> object:
        if min(len(rows.hashes), len(run.hashes)) >= _MANY_ROWS:
            reached(IN_JOIN)
        return candidate_pairs(rows, run, windows)

    return patch.object(joiner, "candidate_pairs", reported)


def _first(mark: Path, migration: str) -> bool:
    try:
        with mark.open("x") as file:
            file.write(migration)
    except FileExistsError:
        return False
    return True


def _die(task: ExitStack) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _kill_executor(task: ExitStack) -> None:
    os.kill(_jvm(), signal.SIGKILL)


def _jvm() -> int:
    """The JVM that started the daemon that started this worker."""
    daemon = os.getppid()
    return int(Path(f"/proc/{daemon}/stat").read_text().rpartition(")")[2].split()[1])


def _pause_driver(task: ExitStack) -> None:
    """Pause the driver and its JVM, which are one process group; this worker is in another."""
    os.killpg(os.getpgid(_jvm()), signal.SIGSTOP)


def _fail(task: ExitStack) -> None:
    raise RuntimeError("a task fails here")


def _starve(task: ExitStack) -> None:
    """Leave this process hardly any memory until the task ends; then others may run in it."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    task.callback(resource.setrlimit, resource.RLIMIT_AS, before)
    size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (size, before[1]))
    # A worker that has run other tasks has memory that it has not given back, which would do.
    ballast: list[object] = []
    task.callback(ballast.clear)
    try:
        while True:
            ballast.append(np.empty(_BALLAST, np.uint8))
    except MemoryError:
        resource.setrlimit(resource.RLIMIT_AS, (size + _HEADROOM, before[1]))


_STRIKE: dict[str, Callable[[ExitStack], None]] = {
    "kill": _die,
    "executor": _kill_executor,
    "raise": _fail,
    "starve": _starve,
    "pause": _pause_driver,
}
