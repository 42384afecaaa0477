"""The functions of Spark's tasks, run in this process: Spark's part, the shuffle, is done by hand.

They go through the pickle that Spark would send them in, so what tasks get can be counted without a JVM.
"""

import pickle
import random
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from unittest.mock import patch

import msgspec
import pyarrow as pa
from pyspark import cloudpickle

from midstream.engine.encode import make_encoders, project
from midstream.engine.program import Program
from midstream.errors import error_from
from midstream.inline import execution
from midstream.protocol.report import Report, add_reports
from midstream.spark.messages import AddressedMessage, ControlMessage, SlicesMessage
from midstream.spark.row_source import encoded
from midstream.spark.stage_task import move_task, stage_task
from midstream.spark.task_ranges import TaskRanges
from midstream.spark.task_slices import slice_messages, slices_by_task, with_own_slices, without_slices


@dataclass
class LocalTasks:
    """Runs epochs of in-process queries by so many tasks, and counts what these get."""

    tasks: int
    order: random.Random = field(default_factory=lambda: random.Random(3))
    """Draws the order in which messages of different tasks arrive."""
    programs: list[tuple[int, Program]] = field(default_factory=list)
    """The tasks of all stages and epochs, each with what it runs and the slices that it was sent."""
    function_bytes: list[int] = field(default_factory=list)
    """The size of the function that the tasks of each stage of each epoch were sent."""

    @contextmanager
    def run_epochs(self) -> Iterator[None]:
        """Meanwhile epochs are run by tasks."""

        def run(shell: execution.InlineExecution, program: Program) -> Report:
            return self._run(shell, program)

        with patch.object(execution.InlineExecution, "run", run):
            yield

    def _run(self, shell: execution.InlineExecution, program: Program) -> Report:
        shell.schema = program.query.output_schema
        shell._program = program
        partitions = program.places.partitions
        ranges = TaskRanges(partitions, min(partitions, self.tasks))
        sent = [*self._encode(shell, program, ranges)]
        if program.migration_step is not None and program.migration_step.moves:
            move = self._unpickled(move_task(program, ranges, shell._store))
            sent += [list(move(task, [own])) for task, own in enumerate(slices_by_task(program, ranges))]
        sent.append(slice_messages(program, ranges))
        for stage in range(program.layout.stages):
            run = stage_task(program, stage, ranges, shell._store, shell)
            # A writer of Spark's is pickled as well; here it is the shell itself, which keeps results.
            with patch.object(execution.InlineExecution, "__reduce__", lambda _: (_the_shell, ())):
                _shells.append(shell)
                run = self._unpickled(run)
            received = self._shuffle(sent, ranges.tasks)
            self._note_slices(program, stage, received)
            sent = [list(run(task, messages)) for task, messages in enumerate(received)]
            _shells.pop()
        found = [m for messages in sent for _, m in messages if isinstance(m, ControlMessage)]
        assert len(found) == sum(map(len, sent)), "only reports and errors are left"
        for message in found:
            if message.kind == "error":
                raise error_from(msgspec.json.decode(message.blob))
        return add_reports(message.blob for message in found)

    def _note_slices(self, program: Program, stage: int, received: list[list[AddressedMessage]]) -> None:
        for task, messages in enumerate(received):
            for _, message in messages:
                if isinstance(message, SlicesMessage) and message.stage == stage:
                    own = with_own_slices(without_slices(program), message.blob)
                    self.programs.append((task, own))

    def _unpickled(self, function):
        pickled = cloudpickle.dumps(function)
        self.function_bytes.append(len(pickled))
        return pickle.loads(pickled)  # noqa: S301  # written the line before

    def _encode(self, shell, program: Program, ranges: TaskRanges) -> Iterable[list[AddressedMessage]]:
        encoders = make_encoders(program.query, program.layout, program.places, whole_rows=True)
        for stream, table in shell._arrivals.items():
            encoder = encoders[stream]
            source = pa.table({c.name: project(table, c, stream) for c in encoder.source})
            yield list(encoded(encoder, source, 0, ranges))

    def _shuffle(self, sent: list[list[AddressedMessage]], tasks: int) -> list[list[AddressedMessage]]:
        """Messages of one task stay in their order."""
        received: list[list[AddressedMessage]] = [[] for _ in range(tasks)]
        for messages in self.order.sample(sent, len(sent)):
            for task, message in messages:
                received[task].append((task, message))
        return received


_shells: list[execution.InlineExecution] = []


def _the_shell() -> execution.InlineExecution:
    return _shells[-1]
