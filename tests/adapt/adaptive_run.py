"""Runs of a query that may adapt, with what was committed, reported and done in each epoch."""

from __future__ import annotations

from dataclasses import dataclass, field

import pyarrow as pa

from midstream.adapt.cost import work_in_units
from midstream.adapt.explain import explain_adaptive
from midstream.inline import InlineJoin
from midstream.protocol.events import Event
from midstream.protocol.progress import EpochProgress
from midstream.protocol.settings import Settings
from midstream.query.query import Query
from midstream.state.manifest import Manifest
from midstream.storage.memory import MemoryStore
from tests.adapt.synthetic_streams import Epoch, clique, query_of

QUERY = query_of("abc", clique("abc"), window=8)
ADAPTING = Settings(1, 1, adapt=True)
FIXED = Settings(1, 1)


@dataclass
class AdaptiveRun:
    """A query that runs in this process, with a record of each epoch."""

    plan: str
    settings: Settings = ADAPTING
    query: Query = QUERY
    background_epochs: int | None = None
    """Epochs of background work with each epoch; all at once if None."""
    store: MemoryStore = field(default_factory=MemoryStore)
    manifests: list[Manifest] = field(default_factory=list)
    results: list[pa.Table] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    work: float = 0.0
    """Units of work that the tasks have counted."""

    def __post_init__(self) -> None:
        self.restart()

    def restart(self) -> None:
        """Open the query on its store, as a new driver does."""
        self.join = InlineJoin(self.query, self.plan, settings=self.settings, store=self.store)
        self.join.addListener(self._record)

    def _record(self, event: Event | EpochProgress) -> None:
        if isinstance(event, Event):
            self.events.append(event)

    def process(self, epochs: list[Epoch]) -> AdaptiveRun:
        for epoch in epochs:
            self.results.append(self.join.run_epoch(epoch, background_epochs=self.background_epochs))
            self.manifests.append(self.join.manifest)
            self.work += work_in_units(self.join.report.work)
        return self

    @property
    def last(self) -> Manifest:
        """The last manifest."""
        return self.manifests[-1]

    @property
    def all_results(self) -> pa.Table:
        return pa.concat_tables(self.results)

    def explanation(self) -> str:
        context = self.join.coordinator.decision_context(self.last)
        return explain_adaptive(context, self.last.adaptation, adapts=self.settings.adapt)
