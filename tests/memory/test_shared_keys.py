"""Hot keys are shared by partitions and gathered again: when, by which stream; results are as without."""

from __future__ import annotations

from unittest import mock

import numpy as np
import pyarrow as pa
import pytest

from midstream.adapt.policy import MigrationPolicy
from midstream.engine.hashing import hash_values
from midstream.inline import InlineJoin
from midstream.memory import hot_keys
from midstream.memory.balance import BalanceDecision, BalanceSettings
from midstream.memory.hot_keys import spread_streams
from midstream.memory.next_step import memory_context
from midstream.protocol.rescaling import places_of
from midstream.protocol.settings import Settings
from midstream.query.query import Query
from midstream.state.routing_table import Spread
from midstream.storage.fsck import check as fsck
from midstream.storage.memory_store import MemoryStore
from midstream.testing import accept, assert_same_rows, batch_join
from midstream.testing.random_streams import SECOND
from midstream.values import Micros
from tests.helpers import TIME, small_query

EPOCH = 4 * SECOND
TWO = small_query(["a.k = b.k"], default_window=10 * SECOND)
HOT = 7
(HASH,) = hash_values(pa.array([HOT])).tolist()
BALANCED = BalanceSettings(mode="lazy_disk", pause=Micros(8 * SECOND), threshold=0.5)


@pytest.fixture(autouse=True)
def little_work_counts():
    with mock.patch.object(hot_keys, "MIN_WORK", 1_000.0):
        yield


def arrivals(number: int, share: float, counts: dict[str, int]) -> dict[str, pa.Table]:
    """Rows of an epoch, a share of which has the hot key."""
    rng = np.random.default_rng(number)
    tables = {}
    for name, count in counts.items():
        keys = rng.integers(100, 2_000, count)
        keys[rng.random(count) < share] = HOT
        times = number * EPOCH + np.sort(rng.integers(0, EPOCH, count))
        none = pa.nulls(count, pa.int64())
        tables[name] = pa.table(
            [
                pa.array(times).cast(TIME),
                pa.array(keys),
                none,
                pa.array([f"{name}{i}" for i in range(count)]),
            ],
            names=["t", "k", "j", "v"],
        )
    return tables


class RestartedQuery:
    """A query that is started again before every third epoch, and what it has done."""

    def __init__(self, query: Query, settings: Settings) -> None:
        self.query, self.settings, self.store = query, settings, MemoryStore()
        self.epochs: list[dict[str, pa.Table]] = []
        self.tables: list[pa.Table] = []
        self.events: list[tuple[int, str, str]] = []
        self.busiest: list[float] = []
        """The share of the work that the busiest partition has done in each epoch."""

    def add(self, epoch: dict[str, pa.Table]) -> InlineJoin:
        if len(self.epochs) % 3 == 0:
            self.join = InlineJoin(self.query, settings=self.settings, store=self.store)
        self.epochs.append(epoch)
        self.tables.append(self.join.run_epoch(epoch))
        assert self.join.lastProgress is not None
        for event in self.join.lastProgress["events"]:
            if "hot-key" in event["type"]:
                self.events.append((event["batchId"], event["type"], event["stream"]))
        work = self.join.report.partition_work
        self.busiest.append(max(work.values()) / sum(work.values()))
        return self.join

    def check(self) -> None:
        assert fsck(self.store).problems == ()
        accepted = accept(self.query, self.epochs, None).tables(self.query)
        assert_same_rows(pa.concat_tables(self.tables), batch_join(self.query, accepted))


@pytest.mark.parametrize(("partitions", "most"), [(4, 0.4), (2, 0.6)])
def test_a_hot_key_is_shared_and_gathered_again_when_it_cools_down(partitions, most):
    run = RestartedQuery(TWO, Settings(partitions, 16))
    for number in range(12):
        run.add(arrivals(number, 0.4, {"a": 300, "b": 60}))
    (first, kind, stream), *others = run.events
    # After a window, in which one partition did nearly all.
    assert (kind, stream, others) == ("hot-key-spread", "a", [])
    assert first * EPOCH >= 10 * SECOND
    assert run.busiest[first - 1] > 0.75
    assert run.busiest[-1] < most
    shared = run.join.manifest.routings[-1].spread["0"][HASH]
    assert len(shared.partitions) == partitions
    assert shared.partitions[0] == places_of(run.join.manifest).routing((0,)).targets(
        np.array([HASH], np.uint64)
    )
    for number in range(12, 30):
        run.add(arrivals(number, 0.0, {"a": 100, "b": 60}))
    assert [kind for _, kind, _ in run.events] == ["hot-key-spread", "hot-key-gathered"]
    assert not any(table.spread for table in run.join.manifest.routings)
    run.check()


def test_where_no_key_is_hot_nothing_is_shared():
    run = RestartedQuery(TWO, Settings(4, 16, balance=BALANCED))
    for number in range(8):
        run.add(arrivals(number, 0.0, {"a": 300, "b": 60}))
    assert run.events == []


def test_with_balance_a_key_is_shared_after_the_pause():
    run = RestartedQuery(TWO, Settings(4, 16, balance=BALANCED))
    for number in range(6):
        run.add(arrivals(number, 0.4, {"a": 60, "b": 300}))
    (first, kind, stream), *_ = run.events
    assert (kind, stream) == ("hot-key-spread", "b")
    assert first * EPOCH < 16 * SECOND
    run.check()


def test_the_stream_that_is_dealt_out_is_in_every_join_of_the_key():
    three = small_query(["a.k = b.k", "b.k = c.k"], "abc", default_window=10 * SECOND)
    join = InlineJoin(three, "(a b) c", settings=Settings(4, 16))
    context = memory_context(three, join.manifest, places_of(join.manifest))
    assert spread_streams(context, (0,)) == {"a", "b", "c"}
    rows = {"a": 50.0, "b": 50.0, "c": 60.0}
    # By c, {a,b} would be made in every partition.
    assert hot_keys._cheapest_stream(context, (0,), ["a", "b", "c"], rows, 4) == "a"
    many = {"a": 2.0, "b": 50.0, "c": 9_000.0}
    assert hot_keys._cheapest_stream(context, (0,), ["a", "b", "c"], many, 4) == "c"
    two = small_query(["a.k = b.k", "b.j = c.j", "c.k = d.k"], "abcd", default_window=10 * SECOND)
    join = InlineJoin(two, "(a b) (c d)", settings=Settings(4, 16))
    context = memory_context(two, join.manifest, places_of(join.manifest))
    assert spread_streams(context, (0,)) == {"a", "b"}
    assert spread_streams(context, (1,)) == {"a", "b", "c", "d"}


def test_a_migration_gathers_keys_first_and_they_are_shared_again():
    three = small_query(["a.k = b.k", "b.k = c.k"], "abc", default_window=10 * SECOND)
    settings = Settings(4, 16, balance=BALANCED, policy=MigrationPolicy("hybrid", background=True))
    run = RestartedQuery(three, settings)
    for number in range(14):
        if number == 6:
            run.join.migrate("a (b c)")
        run.add(arrivals(number, 0.4, {"a": 60, "b": 10, "c": 6}))
    kinds = [kind for _, kind, _ in run.events]
    assert kinds == ["hot-key-spread", "hot-key-gathered", "hot-key-spread"]
    assert run.events[1][0] == 6
    run.check()


def test_rows_that_every_partition_makes_are_counted_once():
    three = small_query(["a.k = b.k", "b.k = c.k"], "abc", default_window=10 * SECOND)

    def produced(spread: dict[str, dict[int, Spread]]) -> dict[str, int]:
        with mock.patch(
            "midstream.protocol.epoch_balance.decide_balance", return_value=BalanceDecision(spread=spread)
        ):
            join = InlineJoin(three, "(a b) c", settings=Settings(4, 16, balance=BALANCED))
            for number in range(4):
                join.run_epoch(arrivals(number, 0.5, {"a": 20, "b": 10, "c": 60}))
        assert join.manifest.routings[-1].spread == spread
        return {str(state): rows for state, rows in join.report.produced.items()}

    assert produced({"0": {HASH: Spread((0, 1, 2, 3), "c")}}) == produced({})
