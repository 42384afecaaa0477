"""What each epoch of a query tells of its health, and facts that are made up for health alone."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime

import pyarrow as pa

from midstream.inline import InlineJoin
from midstream.protocol.health import Health, HealthFacts, HealthLimits
from midstream.protocol.problems import Problem
from midstream.protocol.progress import EpochProgress
from midstream.protocol.settings import Settings
from midstream.protocol.trigger_facts import Backlog, Trend
from midstream.query.query import Query
from midstream.storage.memory_store import MemoryStore
from tests.helpers import rows, small_query

WINDOW = 30
QUERY = small_query(["a.k = b.k"], default_window=WINDOW)
SETTINGS = Settings(1, 1)
NOW = datetime(2026, 3, 2, 12, tzinfo=UTC)
Told = tuple[str, str, str]
"""Type, subject and status of an event."""


def told(progress: EpochProgress) -> list[Told]:
    return [(e.type, e.subject, e.status) for e in progress.events if isinstance(e, Problem)]


class Watched:
    """A query in this process, and what each epoch has told."""

    def __init__(self, query: Query = QUERY, settings: Settings = SETTINGS) -> None:
        self.query, self.settings, self.store = query, settings, MemoryStore()
        self.progress: list[EpochProgress] = []
        self.start()

    def start(self) -> None:
        self.join = InlineJoin(self.query, settings=self.settings, store=self.store)
        self.join.addListener(
            lambda event: self.progress.append(event) if isinstance(event, EpochProgress) else None
        )

    def run(self, arrivals: Mapping[str, int | pa.Table], now: int = 10**15) -> list[Told]:
        """One epoch with one row at a time, or a table, of some streams."""
        tables = {
            name: rows((value, 1)) if isinstance(value, int) else value for name, value in arrivals.items()
        }
        self.join.run_epoch(tables, now=now)
        return told(self.progress[-1])


# From here on the facts are made up: no clock, no source.


def base(query: Query = QUERY) -> HealthFacts:
    watched = Watched(query)
    watched.run({"a": 0, "b": 0})
    return HealthFacts(
        query=query, limits=HealthLimits(), manifest=watched.join.manifest, recent=watched.progress
    )


BASE = base()


def with_backlog(count: int | None, trend: Trend | None) -> HealthFacts:
    (progress,) = BASE.recent
    backlog = None if count is None else Backlog(count, "offsets", trend)
    sources = {**progress.sources, "b": replace(progress.sources["b"], backlog=backlog)}
    return replace(BASE, recent=[replace(progress, sources=sources)])


def statuses(*facts: HealthFacts, now: datetime = NOW) -> list[list[Told]]:
    """What is told of in epochs with these facts, all at the same time."""
    health = Health()
    found: list[list[Told]] = []
    for each in facts:
        health, events = health.after(each, now)
        found.append([(e.type, e.subject, e.status) for e in events])
    return found
