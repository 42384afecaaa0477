"""Running a query in this process, epoch by epoch, from Arrow tables to Arrow tables."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc

from midstream.engine.encode import SourceColumn, make_encoder, time_column
from midstream.engine.program import InputCount, Program
from midstream.plan.default import default_plan
from midstream.plan.tree import Plan, parse_plan
from midstream.protocol.coordinator import Coordinator
from midstream.protocol.report import Report
from midstream.protocol.settings import Settings, describe, must_agree
from midstream.query.query import Query
from midstream.state.manifest import Manifest, OutputFile
from midstream.storage.ledger import Ledger
from midstream.storage.manifests import restore_manifest
from midstream.storage.memory import MemoryStore
from midstream.storage.partition import run_partition
from midstream.storage.store import Store

Message = tuple[int, str, pa.Table]
"""A target partition, the input that the rows belong to, and the rows."""


class InlineSink(Protocol):
    """Where an in-process query puts results so that they outlive it."""

    def stage(self, epoch: int, place: str, rows: pa.Table) -> OutputFile:
        """Keep rows where no reader looks; ``place`` tells apart what an epoch writes."""

    def publish(self, outputs: Sequence[OutputFile]) -> None:
        """Make staged rows visible. May be repeated."""

    def sweep(self) -> None:
        """Remove what attempts that were given up have staged."""


class InlineJoin:
    """A query that runs in this process. Opening one on a used store goes on where it stopped."""

    def __init__(
        self,
        query: Query,
        plan: str | Plan | None = None,
        *,
        settings: Settings = Settings(partitions=2, groups=8),
        store: Store | None = None,
        sink: InlineSink | None = None,
    ) -> None:
        """Without a ``sink`` results are only returned; with one they are also staged and published."""
        self.query = query
        self.store = store if store is not None else MemoryStore()
        chosen = parse_plan(plan, query.names) if isinstance(plan, str) else plan
        stored = restore_manifest(self.store)
        if stored is not None:
            chosen = parse_plan(stored.plan, query.names)
        coordinator = Coordinator.of(query, settings, chosen or default_plan(query))
        manifest = stored or coordinator.first_manifest("inline")
        must_agree(manifest.query, describe(query, settings))
        self.coordinator = coordinator
        self.report = Report()
        self.late: dict[str, list[pa.Table]] = {name: [] for name in query.names}
        self._ledger = Ledger(self.store, coordinator, manifest, run=uuid.uuid4().hex)
        self._sink = sink
        self._ledger.recover(self._shell({}))

    @property
    def manifest(self) -> Manifest:
        """What is committed."""
        return self._ledger.manifest

    def epoch(self, arrivals: Mapping[str, pa.Table]) -> pa.Table:
        """Run one epoch over new rows by stream, commit it, and return its results."""
        shell = self._shell(arrivals)
        self.report = self._ledger.epoch(shell)
        for name, table in shell.late_rows:
            self.late[name].append(table)
        return pa.concat_tables([self.query.output_schema.empty_table(), *shell.tables])

    def _shell(self, arrivals: Mapping[str, pa.Table]) -> _InlineShell:
        return _InlineShell(self.coordinator, self.store, arrivals, self._sink)


class _InlineShell:
    """One epoch as the ledger sees it; it is also the writer, and keeps what others would write."""

    def __init__(
        self,
        coordinator: Coordinator,
        store: Store,
        arrivals: Mapping[str, pa.Table],
        sink: InlineSink | None,
    ) -> None:
        self.tables: list[pa.Table] = []
        self.late_rows: list[tuple[str, pa.Table]] = []
        self._coordinator = coordinator
        self._store = store
        self._arrivals = arrivals
        self._sink = sink

    def run(self, program: Program) -> Report:
        """Every stage in every partition, one after the other."""
        messages, report = self._encode()
        for stage in range(program.layout.stages):
            passed_on: list[Message] = []
            for partition in range(self._coordinator.settings.partitions):
                here: dict[str, list[pa.Table]] = {}
                for target, name, table in messages:
                    if target == partition:
                        here.setdefault(name, []).append(table)
                part, outgoing = run_partition(program, stage, partition, here, self._store, self)
                report += part
                passed_on += [(o.partition, o.input, o.table) for o in outgoing]
            messages += passed_on
        return report

    def prepare(self, epoch: int, report: Report) -> None:
        """Nobody takes results themselves."""

    def publish(self, manifest: Manifest) -> None:
        """Let the sink publish."""
        if self._sink is not None:
            self._sink.publish(manifest.outputs)

    def sweep(self) -> None:
        """Let the sink remove what was given up."""
        if self._sink is not None:
            self._sink.sweep()

    def results(self, epoch: int, partition: int, table: pa.Table | None) -> list[OutputFile]:
        """Keep results, and let the sink stage them."""
        if table is None:
            return []
        self.tables.append(table)
        return [] if self._sink is None else [self._sink.stage(epoch, f"{partition:05d}", table)]

    def late(
        self, epoch: int, fragment: int, partition: int, rows: Mapping[str, pa.Table]
    ) -> list[OutputFile]:
        """Keep late rows."""
        self.late_rows += rows.items()
        return []

    def _encode(self) -> tuple[list[Message], Report]:
        messages: list[Message] = []
        report = Report()
        query, layout = self._coordinator.query, self._coordinator.layout
        for stream, table in self._arrivals.items():
            routing = self._coordinator.settings.routing()
            encoder = make_encoder(query, layout, stream, routing, whole_rows=True)
            source = pa.table({c.name: _project(table, c, stream) for c in encoder.source})
            parts, nulls = encoder(source)
            messages += [(target, stream, part) for target, part in parts]
            report += Report(counts={stream: InputCount(null_key=nulls)})
        return messages, report


def _project(table: pa.Table, column: SourceColumn, stream: str) -> pa.ChunkedArray:
    """What Spark's projection does on the other shell."""
    values = table.column(column.ref.path[0])
    for step in column.ref.path[1:]:
        values = pc.struct_field(values, step)
    if column.name == time_column(stream):
        return values.cast(pa.timestamp("us", values.type.tz)).cast(pa.int64())
    # Spark's cast to double rounds what a double cannot hold; Arrow's would refuse it.
    rounds = column.type is not None and pa.types.is_floating(column.type)
    return values if column.type is None else values.cast(column.type, safe=not rounds)
