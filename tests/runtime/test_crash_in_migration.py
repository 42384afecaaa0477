"""A process may die at any named point of every epoch of a migration, and nothing is lost or doubled."""

import copy
import random
from dataclasses import dataclass
from functools import cache

import pyarrow as pa
import pytest

from midstream.inline import InlineJoin
from midstream.migration.request import make_request
from midstream.protocol.settings import Settings
from midstream.query.query import Query
from midstream.runtime.crash_points import POINTS
from midstream.runtime.epoch_runner import EpochRunner
from midstream.storage.fsck import check as fsck
from midstream.storage.manifest_log import manifest_name, newest_manifest
from midstream.storage.memory_store import MemoryStore
from midstream.storage.numbered_requests import REQUESTS
from midstream.storage.store import Store
from midstream.testing import Shape, accept, assert_same_rows, batch_join, generate
from midstream.testing.faults import FaultStore, SimulatedCrash
from midstream.testing.store_sink import StoreSink
from tests.runtime.crash_runs import NAMES, CrashRun, DeathInEveryEpoch, query_of

SHAPE = Shape(rows=5, late=0.1, keys=4)
# Long enough for slices to be retired and deleted, before the migration and during it.
EPOCHS = generate(dict.fromkeys(NAMES, SHAPE), epochs=11, seed=5)


# States move between partitions only with several keys, and are computed in parts only with one.
SEVERAL_KEYS = query_of(SHAPE, 14, "a.k = b.k", "b.k2 = c.k2", "c.k = d.k")
ONE_KEY = query_of(SHAPE, 30, "a.k = b.k", "b.k = c.k", "c.k = d.k", "a.v = c.v")
OLD, NEW = "((a b) c) d", "a (b (c d))"
BEGINS = 5


@dataclass(frozen=True)
class StrategyCase:
    query: Query
    strategy: str
    background: bool
    isolated: bool | None
    epochs: int
    """How many epochs both plans run in."""

    @property
    def until_ended(self) -> int:
        """How many epochs there are until the one after that which ends the migration."""
        return BEGINS + self.epochs + 2

    def __str__(self) -> str:
        keys = "several keys" if self.query is SEVERAL_KEYS else "one key"
        waits = f" that waits{' isolated' if self.isolated else ''}"
        return f"{self.strategy}{'' if self.background else waits} over {keys}"

    def open(self, store: Store, sink: StoreSink | None = None, plan: str = OLD) -> InlineJoin:
        return InlineJoin(self.query, plan, settings=Settings(2, 8), store=store, sink=sink)

    def migrate(self, query: InlineJoin, plan: str) -> None:
        query.migrate(
            plan, self.strategy, background="auto" if self.background else "off", isolated=self.isolated
        )


STRATEGY_CASES = [
    StrategyCase(SEVERAL_KEYS, "moving_state", True, None, 0),
    StrategyCase(SEVERAL_KEYS, "parallel_track", True, None, 3),
    StrategyCase(SEVERAL_KEYS, "hybrid", False, False, 2),
    StrategyCase(SEVERAL_KEYS, "hybrid", False, True, 3),
    StrategyCase(ONE_KEY, "hybrid", True, None, 4),
]
MOVING, TRACK, WAITING, _, COMPUTING = STRATEGY_CASES


@cache
def _store_before(query: Query, plan: str = OLD) -> FaultStore:
    """The store of a query before the epoch in which the migration begins: no run dies earlier."""
    store = FaultStore(random.Random(1))
    join = InlineJoin(query, plan, settings=Settings(2, 8), store=store, sink=StoreSink(store))
    for epoch in EPOCHS[:BEGINS]:
        join.run_epoch(epoch)
    return store


@cache
def _want(query: Query, count: int) -> pa.Table:
    """The results of the first epochs."""
    return batch_join(query, accept(query, EPOCHS[:count]).tables(query))


class MigrationCrashRun(CrashRun):
    """A query with a migration, over so many epochs."""

    def __init__(self, how: StrategyCase, count: int = len(EPOCHS)) -> None:
        super().__init__(copy.deepcopy(_store_before(how.query)))
        self.how = how
        self.count = count
        self.during: set[int] = set()
        """The epochs after which the migration was under way."""
        self.halves = False
        """Whether an epoch left a state half computed."""

    def _live(self) -> None:
        query = self.how.open(self.store, StoreSink(self.store))
        while query.manifest.epoch + 1 < self.count:
            if query.manifest.epoch + 1 == BEGINS and not self.asked:
                self.how.migrate(query, NEW)
                self.asked = True
            query.run_epoch(EPOCHS[query.manifest.epoch + 1], background_epochs=1)
            if query.manifest.migration is not None:
                self.during.add(query.manifest.epoch)
                self.halves |= bool(query.manifest.migration.rebuilding)

    def check(self) -> None:
        findings = fsck(self.store)
        assert findings.problems == ()
        assert findings.epoch == self.count - 1
        published = StoreSink(self.store).published(self.how.query.output_schema, self.count)
        assert_same_rows(published, _want(self.how.query, self.count))
        manifest = newest_manifest(self.store)
        assert manifest is not None
        assert (manifest.plan, manifest.migration, manifest.migrations) == (NEW, None, 1)


@pytest.mark.parametrize("how", STRATEGY_CASES, ids=str)
def test_the_migration_takes_as_many_epochs_as_these_tests_think(how):
    run = MigrationCrashRun(how)
    assert run.go() == 0
    run.check()
    assert run.during == set(range(BEGINS, BEGINS + how.epochs))
    assert run.halves == (how is COMPUTING)
    assert _want(how.query, how.until_ended).num_rows > 100


DELETES = ("after deleting a slice", "after forgetting a manifest")
"""Points that states of the old plan come to some epochs after its end."""


@pytest.mark.parametrize("power", ["process", "machine"])
@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("how", STRATEGY_CASES, ids=str)
def test_dying_at_each_point_in_every_epoch_of_a_migration_changes_nothing(how, point, power):
    # Epochs without a migration die in test_crash_points.py.
    run = MigrationCrashRun(how, len(EPOCHS) if point in DELETES else how.until_ended)
    death = DeathInEveryEpoch(run, point, power)
    assert run.go(death) == len(death.epochs)
    # In the epoch that applies the request, in those of both plans, and in the one that ends the migration.
    assert death.epochs >= set(range(BEGINS, BEGINS + how.epochs + 1))
    run.check()


@pytest.mark.parametrize("how", STRATEGY_CASES, ids=str)
def test_dying_while_the_request_is_written_leaves_it_or_nothing(how, monkeypatch):
    for moment in ("before", "after"):
        run, died = MigrationCrashRun(how), list[str]()
        real = EpochRunner.request_migration

        def dying(self, request, *, moment=moment, died=died, real=real):
            if moment == "after":
                real(self, request)
            if not died:
                died.append(moment)
                raise SimulatedCrash(moment)
            real(self, request)

        monkeypatch.setattr(EpochRunner, "request_migration", dying)
        run.go()
        monkeypatch.undo()
        assert died == [moment]
        run.check()


def test_a_request_is_there_after_a_power_cut_and_gone_after_it_was_heeded():
    store = FaultStore(random.Random(1))
    query = MOVING.open(store)
    query.run_epoch(EPOCHS[0])
    query.migrate(NEW, "moving_state")
    store.lose_power()
    again = MOVING.open(store)
    assert again.manifest.plan == OLD
    again.run_epoch(EPOCHS[1])
    assert again.manifest.plan == NEW
    again.run_epoch(EPOCHS[2])
    assert again.store.list(REQUESTS) == []


def test_a_request_that_is_made_while_a_migration_is_under_way_survives_it_and_a_crash():
    store = MemoryStore()
    query = MOVING.open(store)
    for epoch in EPOCHS[:3]:
        query.run_epoch(epoch)
    WAITING.migrate(query, NEW)
    query.run_epoch(EPOCHS[3])
    query.migrate("a b c d", "moving_state")
    query.run_epoch(EPOCHS[4])
    assert query.manifest.migration is not None
    plans = []
    for epoch in EPOCHS[5:]:
        query = MOVING.open(store)
        query.run_epoch(epoch)
        plans.append(query.manifest.plan)
    assert list(dict.fromkeys(plans)) == [NEW, "a b c d"]
    assert query.manifest.migrations == 2


def _run_again_after_damage(
    how: StrategyCase, *, asked_before: bool, old: str = OLD, new: str = NEW
) -> tuple[InlineJoin, pa.Table]:
    """The manifest of an epoch is damaged, so that it runs again; gives the query and what readers see."""
    store = copy.deepcopy(_store_before(how.query, old))
    query = how.open(store, StoreSink(store), old)
    if asked_before:
        how.migrate(query, new)
    query.run_epoch(EPOCHS[BEGINS])
    if not asked_before:
        how.migrate(query, new)
    name = manifest_name(query.manifest.lease, BEGINS)
    store.inner.put(name, store.inner.files[name].to_pybytes()[:-10])
    query = how.open(store, StoreSink(store), old)
    assert query.manifest.epoch == BEGINS - 1
    for epoch in EPOCHS[BEGINS:]:
        query.run_epoch(epoch, background_epochs=1)
    return query, StoreSink(store).published(how.query.output_schema, len(EPOCHS))


@pytest.mark.parametrize("how", STRATEGY_CASES, ids=str)
def test_an_epoch_that_runs_again_because_its_manifest_was_damaged_heeds_its_request_again(how):
    query, got = _run_again_after_damage(how, asked_before=True)
    assert query.manifest.plan == NEW
    assert_same_rows(got, _want(how.query, len(EPOCHS)))


# Plans whose results come from fragments of other numbers, and with them from files of other names.
APART = [
    ("(b (a c)) d", "b (a c d)"),
    ("a (b (c d))", "b (a c d)"),
    ("a (b (c d))", "b (a c) d"),
    ("(a b) (c d)", "a (b c) d"),
    ("c ((a b) d)", "a (b c) d"),
    ("b (c (a d))", "c (a (b d))"),
]


@pytest.mark.parametrize("how", [MOVING, TRACK, WAITING], ids=str)
def test_an_epoch_that_runs_again_because_its_manifest_was_damaged_heeds_no_later_request(how):
    for old, new in APART:
        query, got = _run_again_after_damage(how, asked_before=False, old=old, new=new)
        assert query.manifest.plan == new
        assert_same_rows(got, _want(how.query, len(EPOCHS)))


def test_a_request_that_is_made_while_another_is_being_deleted_lasts():
    class Store(MemoryStore):
        """Another thread makes its request at the worst moment."""

        def delete(self, name: str) -> None:
            if name.startswith(REQUESTS) and later:
                query._runner.request_migration(later.pop())
            super().delete(name)

    later = [make_request(MOVING.query, "a b c d", "moving_state", background=True)]
    store = Store()
    query = MOVING.open(store)
    query.run_epoch(EPOCHS[0])
    query.migrate(NEW, "moving_state")
    query.run_epoch(EPOCHS[1])
    query.run_epoch(EPOCHS[2])
    assert later == []
    again = MOVING.open(store)
    again.run_epoch(EPOCHS[3])
    assert again.manifest.plan == "a b c d"
