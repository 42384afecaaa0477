"""Update mode: each epoch gives the windows and groups that its results have changed, as DuckDB has them."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from unittest import mock

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from midstream.aggregate import emit, update
from midstream.aggregate.partials import in_order, merge_partials, partial_aggregates
from midstream.aggregate.read_aggregation import read_aggregation
from midstream.aggregate.update import updated_windows
from midstream.aggregate.window import window
from midstream.engine.results import TIME
from midstream.errors import CheckpointError
from midstream.inline import InlineJoin
from midstream.memory.settings import MemorySettings
from midstream.migration.request import BackgroundChoice
from midstream.protocol.settings import Settings
from midstream.query.query import Query
from midstream.storage.fsck import check as fsck
from midstream.storage.memory_store import MemoryStore
from midstream.testing import generate
from midstream.testing.aggregate_oracle import (
    aggregate_results,
    aggregate_windows,
    aggregation_of,
    assert_same_updates,
    assert_same_windows,
    last_updates,
    timed_results,
)
from midstream.testing.hypothesis_aggregates import aggregated
from midstream.testing.hypothesis_strategies import cases
from midstream.testing.random_cuts import RandomCuts, decided_by
from midstream.testing.random_streams import SECOND
from tests.aggregate.aggregate_run import SHAPE, RestartedJoin, aggregated_query
from tests.helpers import make_stream
from tests.migration.migration_schedules import migration_schedules

SETTINGS = Settings(2, 8)


def updating(query: Query) -> Query:
    """The query in update mode."""
    return replace(query, aggregation=replace(aggregation_of(query), is_update_mode=True))


@dataclass
class Updates(RestartedJoin):
    """A run in update mode; what each epoch gives is checked by the results that it has aggregated."""

    before: list[pa.Table] = field(default_factory=list)

    def process(self, epoch, background_epochs=None, *, drains=False) -> None:
        self.epochs.append(epoch)
        with results_seen() as seen:
            self._check(self.join.run_epoch(epoch, background_epochs=background_epochs, drains=drains), seen)

    def _check(self, got: pa.Table, seen: list[pa.Table]) -> None:
        none = timed_results(self.query, {s.name: s.schema.empty_table() for s in self.query.streams})
        made = pa.concat_tables([none, *seen])
        assert_same_updates(got, made, pa.concat_tables([none, *self.before]), self.query)
        self.before.append(made)
        self.tables.append(got)
        assert not [s for s in self.join.manifest.slices if s.owner.kind == "partial" and is_old(self, s)]

    def check_last(self) -> None:
        """The last update of each window and group is what it has over the batch join."""
        want = aggregate_windows(self.query, self.accepted())
        assert_same_windows(last_updates(self.tables, self.query), want, self.query)


def is_old(run: Updates, slice_) -> bool:
    """Whether the output watermark has passed all windows of a slice."""
    emitted, windows = run.join.manifest.emitted, aggregation_of(run.query).windows
    return emitted is not None and max(slice_.latest) + windows.length <= emitted


@contextmanager
def results_seen():
    """The results that are aggregated meanwhile."""
    seen: list[pa.Table] = []

    def seeing(aggregation, results):
        seen.append(results)
        return partial_aggregates(aggregation, results)

    with mock.patch("midstream.aggregate.run_fragment.partial_aggregates", seeing):
        yield seen


@given(st.data())
def test_each_epoch_gives_what_its_results_have_changed(data):
    case = data.draw(cases(max_streams=4, max_results=1500))
    run = Updates(updating(data.draw(aggregated(case.query))), case.plan, case.settings)
    none = {stream.name: stream.schema.empty_table() for stream in run.query.streams}
    accepted = run.accepted()
    for epoch in case.epochs:
        run.process(epoch)
        # Without migrations and cuts, the results of an epoch are those with a row of it.
        before, accepted = accepted, run.accepted()
        since = {name: before[name].num_rows for name in none}
        want = timed_results(run.query, accepted, since=since)
        assert_same_windows(
            aggregate_results(run.query, run.before[-1]), aggregate_results(run.query, want), run.query
        )
    run.check_last()
    assert not run.join.coordinator.owes(run.join.manifest)


@given(st.data())
def test_what_is_owed_or_deferred_updates_when_it_comes(data):
    case = data.draw(cases(max_streams=5, max_epochs=7, max_results=1500))
    schedule = data.draw(migration_schedules(case, with_stops=True)) if data.draw(st.booleans()) else None
    cuts = data.draw(st.integers(0, 1 << 30)) if data.draw(st.booleans()) else None
    counts = st.sampled_from([n for n in (1, 2, 3, 4) if n <= case.settings.groups])
    rescales = data.draw(st.dictionaries(st.integers(0, 6), counts, max_size=3))
    settings = case.settings if cuts is None else replace(case.settings, memory=MemorySettings(1))
    with decided_by(None if cuts is None else RandomCuts(cuts)):
        run = Updates(updating(data.draw(aggregated(case.query))), case.plan, settings)
        for number, epoch in enumerate(case.epochs):
            if schedule is not None and number in schedule.stops:
                run.restart()
            if number in rescales:
                run.join.rescale(rescales[number])
            if schedule is not None and number in schedule.requests:
                request = schedule.requests[number]
                background: BackgroundChoice = "auto" if request.background else "off"
                run.join.migrate(
                    request.plan, request.strategy, background=background, isolated=request.isolated
                )
            run.process(epoch, None if schedule is None else schedule.paces[number])
        assert not fsck(run.store).problems
        run.process({}, drains=True)
        while run.join.coordinator.owes(run.join.manifest):
            run.process({}, drains=True)
        if run.join.manifest.migration is None:
            run.check_last()


def test_a_window_leaves_the_state_once_it_is_complete():
    run = Updates(updating(aggregated_query()), "(a b) c", SETTINGS)
    rows = 0
    for epoch in generate(dict.fromkeys("abc", SHAPE), epochs=40, seed=2):
        run.process(epoch)
        rows = sum(s.rows for s in run.join.manifest.slices if s.owner.kind == "partial")
        assert rows < 600
    assert rows > 20
    assert len(last_updates(run.tables, run.query)) > 600
    assert not run.join.drain().num_rows


def test_only_what_is_near_is_read():
    """Of stored groups only those that have changed are merged, and only in panes that are near."""
    stream = make_stream("a", {"t": pa.timestamp("us"), "k": pa.int64()})
    aggregation = read_aggregation(["a.k", window("20 seconds", "5 seconds")], ["count(*) AS n"], [stream])
    count = 10_000

    def panes(keys, seconds):
        times = np.full(len(keys), seconds * SECOND)
        return in_order(partial_aggregates(aggregation, pa.table({"a.k": pa.array(keys), TIME: times})))

    stored = [panes(np.arange(count), at).to_arrow() for at in (0, 100, 110, 115, 130, 200)]
    merged = []

    def measured(aggregation, tables, by):
        merged.append(sum(map(len, tables)))
        return merge_partials(aggregation, tables, by)

    with mock.patch.object(update, "merge_partials", measured):
        (got,) = updated_windows(aggregation, panes(np.array([7, 9]), 110), stored)
    assert {row["window"]["end"].second: row["n"] for row in got.to_pylist()} == {55: 3, 0: 4, 5: 3, 10: 3}
    assert len(got) == 8
    assert merged[0] <= 2 * 5 * 4


@pytest.mark.parametrize("at_once", [10, 100, 1000])
def test_many_groups_are_updated_some_at_a_time(at_once):
    query = updating(aggregated_query())
    epochs = generate(dict.fromkeys("abc", replace(SHAPE, rows=30)), epochs=6, seed=5)
    tables = []
    for limit in (at_once, 1 << 20):
        with mock.patch.object(update, "ROWS_AT_ONCE", limit), mock.patch.object(emit, "ROWS_AT_ONCE", limit):
            join = InlineJoin(query, settings=SETTINGS)
            tables.append([join.run_epoch(epoch) for epoch in epochs])
    for some, whole in zip(*tables, strict=True):
        assert_same_windows(some, whole, query)


def test_the_mode_stays():
    store = MemoryStore()
    query = aggregated_query()
    InlineJoin(updating(query), settings=SETTINGS, store=store).run_epoch({})
    with pytest.raises(CheckpointError, match=r"outputMode was 'update'; got 'append'\. Hint"):
        InlineJoin(query, settings=SETTINGS, store=store)
