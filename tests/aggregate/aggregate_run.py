"""Runs of a query with aggregates, whose windows are compared with DuckDB's over the batch join."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from unittest import mock

import pyarrow as pa

from midstream.aggregate.next_step import output_watermark
from midstream.aggregate.read_aggregation import read_aggregation
from midstream.aggregate.window import window
from midstream.inline import InlineJoin
from midstream.plan.tree import Plan
from midstream.protocol.settings import Settings
from midstream.query.build import build_query
from midstream.query.query import Query
from midstream.storage.memory_store import MemoryStore
from midstream.testing import Shape, accept, stream
from midstream.testing.aggregate_oracle import aggregate_windows, aggregation_of, assert_same_windows
from midstream.testing.random_streams import SECOND
from midstream.values import Micros

SHAPE = Shape(rows=12, late=0.1)
FAR = 2**55
"""After all windows of all tests."""


def aggregated_query() -> Query:
    """Three streams, and windows of their results that overlap."""
    streams = [stream(name, SHAPE) for name in "abc"]
    aggregation = read_aggregation(["a.k", window("20 seconds", "5 seconds")], ["count(*) AS n"], streams)
    return build_query(
        streams,
        ["a.k = b.k", "b.k2 = c.k2"],
        default_window=Micros(25 * SECOND),
        aggregation=aggregation,
    )


@dataclass
class RestartedJoin:
    """A query that is started again in one store, what it was given, and what has come out of it."""

    query: Query
    plan: str | Plan
    settings: Settings
    store: MemoryStore = field(default_factory=MemoryStore)
    epochs: list[Mapping[str, pa.Table]] = field(default_factory=list)
    tables: list[pa.Table] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.join = InlineJoin(self.query, self.plan, settings=self.settings, store=self.store)

    def restart(self) -> None:
        self.join = InlineJoin(self.query, settings=self.settings, store=self.store)

    def accepted(self) -> Mapping[str, pa.Table]:
        return accept(self.query, self.epochs, self.settings.idle_timeout).tables(self.query)


@dataclass
class AggregateRun(RestartedJoin):
    """A run whose windows leave once."""

    bounds: list[int | None] = field(default_factory=list)
    """The output watermark of each epoch."""

    def process(
        self,
        epochs: Iterable[Mapping[str, pa.Table]],
        background_epochs: int | None = None,
        *,
        drains: bool = False,
    ) -> AggregateRun:
        aggregation = aggregation_of(self.query)
        for epoch in epochs:
            before = self.join.manifest
            self.epochs.append(epoch)
            results = self.join.run_epoch(epoch, background_epochs=background_epochs, drains=drains)
            self._keep(results, before.emitted)
            assert self.join.manifest.emitted == output_watermark(self.query, aggregation, before)
        return self

    def _keep(self, table: pa.Table, emitted: int | None) -> None:
        """Every window that leaves ends after the output watermark of before, and until that of now."""
        self.tables.append(table)
        self.bounds.append(self.join.manifest.emitted)
        ends = table.column("window").combine_chunks().field("end").cast(pa.int64()).to_pylist()
        assert all(emitted is None or end > emitted for end in ends)
        assert all(end <= self.bounds[-1] for end in ends)

    def check(self) -> None:
        """What has come out is what DuckDB has of all windows that have ended."""
        until = self.join.manifest.emitted
        want = aggregate_windows(self.query, self.accepted(), until=-FAR if until is None else until)
        assert_same_windows(pa.concat_tables(self.tables), want, self.query)

    def finish(self) -> None:
        """Let all windows leave that are still in state, as if time had come to its end, and check them."""
        with mock.patch("midstream.aggregate.next_step.output_watermark", return_value=FAR):
            self.tables.append(self.join.run_epoch({}))
            assert self.join.manifest.emitted == FAR
        want = aggregate_windows(self.query, self.accepted())
        assert_same_windows(pa.concat_tables(self.tables), want, self.query)
        assert not [s for s in self.join.manifest.slices if s.owner.kind == "partial"]
