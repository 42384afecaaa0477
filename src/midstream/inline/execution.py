"""One epoch in this process: a task after the other, and sinks in which results outlive it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa
from msgspec.structs import replace

from midstream.engine.encode import make_encoder, project
from midstream.engine.error_context import error_context
from midstream.engine.link_traffic import LinkCounter
from midstream.engine.program import Program, StreamCounts
from midstream.engine.routed_rows import RoutedRows, RowsKind
from midstream.plan.state_id import StateId
from midstream.protocol.report import Report, merge_reports
from midstream.query.network import Site
from midstream.runtime.partition_task import Clock, move_states, run_partition
from midstream.state.costs import MeasuredPart
from midstream.state.manifest import OutputFile, OutputTableName
from midstream.storage.late_rows import late_columns, late_rows
from midstream.storage.output_table import FragmentRunId
from midstream.storage.store import Store


class InlineSink(Protocol):
    """Where an in-process query puts results so that they outlive it."""

    def stage(self, task: FragmentRunId, rows: pa.Table) -> OutputFile:
        """Keep the rows of a task where no reader looks."""

    def publish(self, outputs: Sequence[OutputFile]) -> None:
        """Make staged rows visible. May be repeated."""

    def sweep(self) -> None:
        """Remove what abandoned attempts have staged."""


Sinks = Mapping[OutputTableName, InlineSink | None]


@dataclass(frozen=True)
class SinkPublisher:
    """Publishes what was staged in the sinks."""

    sinks: Sinks

    def publish(self, epoch: int, outputs: Sequence[OutputFile]) -> None:
        """Let the sinks publish."""
        for table, sink in self.sinks.items():
            if sink is not None:
                sink.publish([output for output in outputs if self._table(output) == table])

    def _table(self, output: OutputFile) -> OutputTableName:
        """The sink of an output: what was the new one's before a restart is now the only one's."""
        has_successor = self.sinks["successor"] is not None
        return "results" if output.table == "successor" and not has_successor else output.table

    def sweep(self) -> None:
        """Let the sinks remove what abandoned attempts have staged."""
        for sink in self.sinks.values():
            if sink is not None:
                sink.sweep()


class InlineExecution:
    """One epoch as the epoch runner sees it; also the writer, which keeps results and late rows in memory."""

    def __init__(
        self,
        store: Store,
        arrivals: Mapping[str, pa.Table],
        sinks: Sinks,
        clock: Clock | None,
    ) -> None:
        self._clock = clock
        self.schema = pa.schema([])
        self.tables: list[pa.Table] = []
        self.new_tables: list[pa.Table] = []
        """Results of a new box, if they have a place of their own."""
        self.late_rows: list[tuple[str, pa.Table]] = []
        self._program: Program
        """What runs now, or did last."""
        self._store = store
        self._arrivals = arrivals
        self._sinks = sinks

    def run(self, program: Program) -> Report:
        """Every stage in every partition, one after the other; then the same of a new box."""
        self.schema = program.query.output_schema
        report = self._run(program)
        if program.successor is None:
            return report
        return replace(report, successor=self._run(program.successor))

    def _run(self, program: Program) -> Report:
        self._program = program
        if program.is_idle:
            return Report()
        by_partition: dict[int, list[RoutedRows]] = {}
        messages, reports = self._encode(program)
        _pass_on(messages, by_partition)
        for partition in range(program.sending_partition_count):
            moved = list(move_states(program, partition, self._store))
            reports += self._sent(program, program.places.site_of.get(partition), moved)
            _pass_on(moved, by_partition)
        for stage in range(program.stages):
            passed_on: list[RoutedRows] = []
            for partition in range(program.places.partitions):
                arrivals: dict[tuple[StateId, RowsKind], list[pa.Table]] = {}
                for rows in by_partition.get(partition, ()):
                    arrivals.setdefault((rows.input, rows.kind), []).append(rows.table)
                report, outgoing = run_partition(
                    program, stage, partition, arrivals, self._store, self, self._clock
                )
                reports.append(report)
                reports += self._sent(program, program.places.site_of.get(partition), outgoing)
                passed_on += outgoing
            _pass_on(passed_on, by_partition)
        return merge_reports(reports)

    def _sent(self, program: Program, source: Site | None, rows: Iterable[RoutedRows]) -> list[Report]:
        """A report of what goes from a site to others, if there are sites; here a table is a message."""
        if source is None:
            return []
        counter = LinkCounter(source)
        for sent in rows:
            target = program.places.site_of[sent.partition]
            counter.count(target, sent.table.nbytes, sent.table.num_rows)
        return [Report(links=counter.links)]

    def prepare(self, program: Program, report: Report) -> None:
        """Do nothing: the caller gets the results after the commit."""

    def results(self, task: FragmentRunId, rows: pa.Table | None) -> list[OutputFile]:
        """Keep results, and let the sink stage them."""
        if rows is None:
            return []
        table = self._program.output_table
        is_beside = table == "successor" and self._program.replacement is None
        (self.new_tables if is_beside else self.tables).append(rows)
        sink = self._sinks[table]
        return [] if sink is None else [replace(sink.stage(task, rows), table=table)]

    def late(self, task: FragmentRunId, rows: Mapping[str, pa.Table]) -> list[OutputFile]:
        """Keep late rows, and let their sink stage them."""
        self.late_rows += rows.items()
        sink = self._sinks["late"]
        if sink is None:
            return []
        columns = late_columns(self._program.query)
        parts = [late_rows(task.epoch, name, part, columns[name]) for name, part in rows.items()]
        return [sink.stage(task, pa.concat_tables(parts))]

    def _encode(self, program: Program) -> tuple[list[RoutedRows], list[Report]]:
        messages: list[RoutedRows] = []
        reports: list[Report] = []
        begin = 0.0 if self._clock is None else self._clock()
        for stream, table in self._arrivals.items():
            if stream not in program.query.by_name or stream in program.withheld_streams:
                continue  # another box takes it
            encoder = make_encoder(program.query, program.layout, stream, program.places, whole_rows=True)
            with error_context("encoding rows", batch=program.epoch, streams=[stream]):
                source = pa.table({c.name: project(table, c, stream) for c in encoder.source})
                parts, nulls = encoder(source)
            messages += parts
            topology = program.query.topology
            home = None if topology is None else topology.site_of[stream]
            reports += self._sent(program, home, parts)
            reports.append(Report(counts={stream: StreamCounts(null_key=nulls)}))
        if self._clock is not None:
            sent = sum(rows.table.num_rows for rows in messages)
            cpu_seconds: dict[MeasuredPart, float] = {"send": self._clock() - begin}
            receives = len(self._arrivals)
            reports.append(Report(cpu_seconds=cpu_seconds, received_rows=sent, receives=receives))
        return messages, reports


def _pass_on(messages: Iterable[RoutedRows], by_partition: dict[int, list[RoutedRows]]) -> None:
    for rows in messages:
        by_partition.setdefault(rows.partition, []).append(rows)
