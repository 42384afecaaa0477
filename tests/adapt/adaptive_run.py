"""Runs of a query of three streams that may adapt, and what is noted of them."""

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


@dataclass
class Run:
    """A run that notes what holds after each epoch."""

    plan: str
    settings: Settings = ADAPTING
    query: Query = QUERY
    background_epochs: int | None = None
    store: MemoryStore = field(default_factory=MemoryStore)
    manifests: list[Manifest] = field(default_factory=list)
    tables: list[pa.Table] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    work: float = 0.0

    def __post_init__(self) -> None:
        self.reopen()

    def reopen(self) -> None:
        self.join = InlineJoin(self.query, self.plan, settings=self.settings, store=self.store)
        self.join.addListener(self._note)

    def _note(self, event: Event | EpochProgress) -> None:
        if isinstance(event, Event):
            self.events.append(event)

    def go(self, epochs: list[Epoch]) -> Run:
        for epoch in epochs:
            self.tables.append(self.join.run_epoch(epoch, background_epochs=self.background_epochs))
            self.manifests.append(self.join.manifest)
            self.work += work_in_units(self.join.report.work)
        return self

    @property
    def last(self) -> Manifest:
        return self.manifests[-1]

    def says(self) -> str:
        decision_context = self.join.coordinator.decision_context(self.last)
        return explain_adaptive(decision_context, self.last.adaptation, adapts=self.settings.adapt)
