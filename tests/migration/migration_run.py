"""Recorded runs of four streams, with and without a migration."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import pyarrow as pa

from midstream.engine.work import WorkCounts
from midstream.inline import InlineJoin
from midstream.protocol.settings import Settings
from midstream.query.query import Query
from midstream.state.manifest import Manifest
from midstream.state.migration import HandoverEntry, Migration
from midstream.state.slices import Slice
from tests.helpers import rows, small_query
from tests.migration.migration_cases import StrategyCase
from tests.recorded_run import RecordedRun

ON = ["a.k = b.k", "b.k = c.k", "c.k = d.k"]
QUERY = small_query(ON, "abcd", default_window=30, select=["a.v as a", "b.v as b", "c.v as c", "d.v as d"])
WITHOUT_WINDOW = small_query(ON, "abcd", select=["a.v as a", "b.v as b", "c.v as c", "d.v as d"])
LEFT_DEEP, REORDERED = "((a b) c) d", "((c d) a) b"
START = 3
HYBRID = StrategyCase("hybrid")
SHARING = StrategyCase("hybrid", background=False, isolated=False)
ISOLATED = StrategyCase("hybrid", background=False, isolated=True)
PARALLEL_TRACK = StrategyCase("parallel_track")


def arrivals(epoch: int) -> dict[str, pa.Table]:
    """One row of each stream, ten microseconds after that of the previous epoch; all keys are equal."""
    return {name: rows((10 * epoch, 1, 1, f"{name}{epoch}")) for name in "abcd"}


@dataclass
class MigrationRun(RecordedRun):
    """A run over :func:`arrivals`."""

    query: Query = QUERY
    plan: str = LEFT_DEEP

    def migrate(self, plan: str, how: StrategyCase = HYBRID) -> None:
        how.migrate(self.join, plan)

    def go(self, epochs: int, background_epochs: int | None = None) -> MigrationRun:
        first = self.join.manifest.epoch + 1
        return self.process((arrivals(first + number) for number in range(epochs)), background_epochs)

    def event_types(self) -> list[tuple[int, str]]:
        """The epoch and type of each event."""
        return [(event.batch_id, event.type) for event in self.events]


def run_migration(
    how: StrategyCase,
    new: str = REORDERED,
    background_epochs: int | None = None,
    query: Query = QUERY,
) -> MigrationRun:
    """A run over twelve epochs with a migration. Tests share it, so it must not go on."""
    return _run_migration(how, new, background_epochs, query)


@cache
def _run_migration(how: StrategyCase, new: str, background_epochs: int | None, query: Query) -> MigrationRun:
    run = MigrationRun(query).go(START)
    run.migrate(new, how)
    return run.go(12 - START, background_epochs)


def slices_of(manifest: Manifest, *states: str) -> list[Slice]:
    return [s for s in manifest.slices if s.owner.state in states]


def entries_of(migration: Migration | None) -> list[HandoverEntry]:
    tables = migration.handover if migration else {}
    return [entry for entries in tables.values() for entry in entries]


def work_of(names: str, plan: str) -> WorkCounts:
    """The work of a query over some of the streams in the epoch in which migrations begin."""
    on = [f"a.k = {name}.k" for name in names[1:]]
    join = InlineJoin(small_query(on, names, default_window=30), plan, settings=Settings(1, 1))
    for epoch in range(START + 1):
        join.run_epoch({name: table for name, table in arrivals(epoch).items() if name in names})
    return join.report.work


@cache
def run_unchanged(epochs: int = 12, query: Query = QUERY) -> MigrationRun:
    """A run without a migration. Tests share it, so it must not go on."""
    return MigrationRun(query).go(epochs)
