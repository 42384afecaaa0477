"""Running a query in this process, epoch by epoch, from Arrow tables to Arrow tables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from midstream.engine.encode import SourceColumn, make_encoder, time_column
from midstream.engine.program import InputCount
from midstream.plan.default import default_plan
from midstream.plan.tree import Plan, parse_plan
from midstream.protocol.coordinator import Coordinator, expendable
from midstream.protocol.report import Report
from midstream.protocol.settings import Settings, describe, must_agree
from midstream.query.query import Query
from midstream.state.manifest import Manifest, OutputFile
from midstream.storage.manifests import commit_manifest, forget_manifests, newest_manifest
from midstream.storage.memory import MemoryStore
from midstream.storage.partition import run_partition
from midstream.storage.slices import FOLDER as SLICES
from midstream.storage.store import Store


@dataclass
class _Collector:
    """Keeps results and late rows instead of writing them."""

    tables: list[pa.Table] = field(default_factory=list)
    late_rows: list[tuple[str, pa.Table]] = field(default_factory=list)

    def results(self, epoch: int, partition: int, table: pa.Table | None) -> list[OutputFile]:
        if table is not None:
            self.tables.append(table)
        return []

    def late(
        self, epoch: int, fragment: int, partition: int, rows: Mapping[str, pa.Table]
    ) -> list[OutputFile]:
        self.late_rows += rows.items()
        return []


class InlineJoin:
    """A query that runs in this process. Opening one on a used store goes on where it stopped."""

    def __init__(
        self,
        query: Query,
        plan: str | Plan | None = None,
        *,
        settings: Settings = Settings(partitions=2, groups=8),
        store: Store | None = None,
    ) -> None:
        self.query = query
        self.store = store if store is not None else MemoryStore()
        chosen = parse_plan(plan, query.names) if isinstance(plan, str) else plan
        stored = newest_manifest(self.store)
        if stored is not None:
            chosen = parse_plan(stored.plan, query.names)
        self.coordinator = Coordinator.of(query, settings, chosen or default_plan(query))
        self.manifest: Manifest = stored or self.coordinator.first_manifest("inline")
        must_agree(self.manifest.query, describe(query, settings))
        self.report = Report()
        self.late: dict[str, list[pa.Table]] = {name: [] for name in query.names}

    def epoch(self, arrivals: Mapping[str, pa.Table]) -> pa.Table:
        """Run one epoch over new rows by stream, commit it, and return its results."""
        program = self.coordinator.program(self.manifest)
        messages, report = self._encode(arrivals)
        collector = _Collector()
        for stage in range(program.layout.stages):
            passed_on: list[tuple[int, str, pa.Table]] = []
            for partition in range(self.coordinator.settings.partitions):
                here: dict[str, list[pa.Table]] = {}
                for target, name, table in messages:
                    if target == partition:
                        here.setdefault(name, []).append(table)
                part, outgoing = run_partition(program, stage, partition, here, self.store, collector)
                report += part
                passed_on += [(o.partition, o.input, o.table) for o in outgoing]
            messages += passed_on
        after = self.coordinator.commit(self.manifest, program, report)
        commit_manifest(self.store, after)
        for name in expendable(self.manifest, after):
            self.store.delete(f"{SLICES}/{name}")
        forget_manifests(self.store, after.epoch)
        self.manifest, self.report = after, report
        for name, table in collector.late_rows:
            self.late[name].append(table)
        empty = self.query.output_schema.empty_table()
        return pa.concat_tables([empty, *collector.tables])

    def _encode(self, arrivals: Mapping[str, pa.Table]) -> tuple[list[tuple[int, str, pa.Table]], Report]:
        messages: list[tuple[int, str, pa.Table]] = []
        report = Report()
        routing = self.coordinator.settings.routing()
        for stream, table in arrivals.items():
            encoder = make_encoder(self.query, self.coordinator.layout, stream, routing, whole_rows=True)
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
