"""Runs of a query in this process, with a record of each epoch: manifest, results, work and progress."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Self

import pyarrow as pa

from midstream.adapt.cost import work_in_units
from midstream.engine.work import WorkCounts
from midstream.inline import InlineJoin
from midstream.plan.handover import PlanSide
from midstream.protocol.event import Event
from midstream.protocol.progress import EpochProgress
from midstream.protocol.settings import Settings
from midstream.query.query import Query
from midstream.state.manifest import Manifest
from midstream.storage.memory_store import MemoryStore


@dataclass
class RecordedRun:
    """A query, its store, and what each epoch has committed, given, done and reported."""

    query: Query
    plan: str
    settings: Settings = Settings(1, 1)
    store: MemoryStore = field(default_factory=MemoryStore)
    manifests: list[Manifest] = field(default_factory=list)
    results: list[pa.Table] = field(default_factory=list)
    work: list[dict[PlanSide, WorkCounts]] = field(default_factory=list)
    work_units: float = 0.0
    """The work of all epochs, as the cost model weighs it."""
    progress: list[EpochProgress] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.restart()

    def restart(self) -> None:
        """Open the query on its store, as a new driver does."""
        self.join = InlineJoin(self.query, self.plan, settings=self.settings, store=self.store)
        self.join.addListener(self._record)

    def _record(self, event: Event | EpochProgress) -> None:
        if isinstance(event, EpochProgress):
            self.progress.append(event)

    def process(self, epochs: Iterable[Mapping[str, pa.Table]], background_epochs: int | None = None) -> Self:
        """Run epochs; ``background_epochs`` are those of background work with each, all at once if None."""
        for epoch in epochs:
            self.results.append(self.join.run_epoch(epoch, background_epochs=background_epochs))
            self.manifests.append(self.join.manifest)
            self.work.append(self.join.report.work_by_plan)
            self.work_units += work_in_units(self.join.report.work)
        return self

    @property
    def last(self) -> Manifest:
        """The last manifest."""
        return self.manifests[-1]

    @property
    def all_results(self) -> pa.Table:
        """The results of all epochs."""
        return pa.concat_tables(self.results)

    @property
    def events(self) -> list[Event]:
        """The events of all epochs."""
        return [event for progress in self.progress for event in progress.events]

    @property
    def running(self) -> list[int]:
        """The epochs after which a migration was in progress."""
        return [m.epoch for m in self.manifests if m.migration is not None]

    @property
    def ends(self) -> dict[int, str]:
        """The epochs in which migrations ended, with their new plans."""
        return {m.epoch: m.ended_migration.new_plan for m in self.manifests if m.ended_migration is not None}
