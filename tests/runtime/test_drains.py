"""Epochs without a batch, which make what spilled groups owe: whatever happens to one, batches go on."""

from __future__ import annotations

import random
from dataclasses import replace

import pyarrow as pa
import pytest

from midstream.inline import InlineJoin
from midstream.memory.settings import MemorySettings
from midstream.protocol.settings import Settings
from midstream.query.build import build_query
from midstream.runtime.crash_points import POINTS, crash_hook
from midstream.storage.fsck import check as fsck
from midstream.storage.intents import write_or_read_intent
from midstream.testing import Shape, accept, assert_same_rows, batch_join, generate, stream
from midstream.testing.faults import FaultStore
from midstream.testing.store_sink import StoreSink
from midstream.values import Micros

SHAPE = Shape(rows=20)
BATCHES = generate(dict.fromkeys("ab", SHAPE), epochs=6, seed=5)
QUERY = build_query(
    [stream(name, SHAPE) for name in "ab"],
    ["a.k = b.k"],
    default_window=Micros(60_000_000),
    select=["a.id", "b.id"],
)
SETTINGS = Settings(2, 8, memory=MemorySettings(budget=2_000), adapt=False)


class Query:
    """A query that is started again and again on one store, with a sink there."""

    def __init__(self) -> None:
        self.store = FaultStore(random.Random(0))
        self.start()

    def start(self) -> None:
        self.sink = StoreSink(self.store, "results", 99)
        self.join = InlineJoin(QUERY, settings=SETTINGS, store=self.store, sink=self.sink)

    def run_batches(self, *numbers: int) -> None:
        for number in numbers:
            assert self.join.manifest.batch == number - 1
            self.join.run_epoch(BATCHES[number])

    def check(self, batches: int) -> None:
        assert (self.join.manifest.batch, self.join.coordinator.owes(self.join.manifest)) == (
            batches - 1,
            False,
        )
        published = self.sink.published(QUERY.output_schema, self.join.manifest.epoch)
        accepted = accept(QUERY, BATCHES[:batches]).tables(QUERY)
        assert_same_rows(published, batch_join(QUERY, accepted))
        assert not fsck(self.store.inner).problems


@pytest.mark.parametrize("point", POINTS)
def test_a_query_goes_on_after_a_drain_that_failed_anywhere(point):
    query = Query()
    query.run_batches(0, 1, 2)
    assert query.join.coordinator.owes(query.join.manifest)

    def fail(here: str) -> None:
        if here == point:
            raise OSError(28, "no space")

    with crash_hook(fail):
        try:
            query.join.drain()
        except OSError:
            assert query.join.manifest.batch == 2
    query.run_batches(3, 4)
    query.join.drain()
    query.check(5)


def test_a_drain_that_a_fenced_driver_begins_runs_before_the_batch():
    query = Query()
    query.run_batches(0, 1, 2)
    fenced = query.join
    query.start()
    # It was paused between checking its lease and writing the intent.
    late = fenced._runner.new_intent(0, None, drains=True, without_batch=True)
    assert write_or_read_intent(query.store, late) is late
    query.run_batches(3)
    assert query.join.manifest.epochs_without_batch == 1
    query.join.drain()
    query.check(4)


def test_a_drain_waits_for_a_batch_that_was_begun():
    query = Query()
    query.run_batches(0, 1, 2)

    def fail(here: str) -> None:
        if here == "before the step":
            raise OSError(5, "failed")

    with crash_hook(fail), pytest.raises(OSError, match="failed"):
        query.run_batches(3)
    query.start()
    assert query.join.run_drain_epoch() is None
    assert query.join.drain().num_rows == 0
    query.run_batches(3)
    query.join.drain()
    query.check(4)


def test_every_result_of_a_drain_is_returned():
    query = Query()
    tables = [query.join.run_epoch(batch) for batch in BATCHES]
    tables.append(query.join.drain())
    query.check(len(BATCHES))
    accepted = accept(QUERY, BATCHES).tables(QUERY)
    assert_same_rows(pa.concat_tables(tables), batch_join(QUERY, accepted))


def test_problems_of_streams_last_through_a_drain():
    shape = Shape(rows=60, late=0.2, keys=100)
    settings = replace(SETTINGS, groups=64, memory=MemorySettings(budget=1_000))
    join = InlineJoin(QUERY, settings=settings)
    for batch in generate(dict.fromkeys("ab", shape), epochs=5, seed=5):
        join.run_epoch(batch)
    before = len(join.recentProgress)
    problems = join.recentProgress[-1]["problems"]
    assert {(p["type"], p["stream"]) for p in problems} == {("late-rows", "a"), ("late-rows", "b")}
    join.drain()
    drained = join.recentProgress[before:]
    assert len(drained) > 10
    assert all(progress["problems"] == problems for progress in drained)
    assert not [e for progress in drained for e in progress["events"] if "status" in e]
