"""Any query whose number of partitions changes at any time, with migrations, spilled groups and restarts.

What is spilled, relocated and shared is decided by chance, or as in production, within real budgets and with
any strategy. Whatever comes together, in the end the results are those of DuckDB, and the checkpoint is sound
after every epoch. Slices are merged by twos, so that a few epochs are enough for several levels of them.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from unittest import mock

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from midstream.errors import OptionError
from midstream.inline import InlineJoin
from midstream.memory import hot_keys
from midstream.memory.balance import BALANCE_MODES, BalanceSettings
from midstream.memory.settings import MemorySettings
from midstream.memory.strategies import SPILL_STRATEGIES
from midstream.plan.tree import Plan
from midstream.protocol.settings import Settings
from midstream.storage.fsck import check as fsck
from midstream.storage.memory_store import MemoryStore
from midstream.testing import accept, assert_same_rows, batch_join
from midstream.testing.hypothesis_strategies import Case, cases, plans
from midstream.testing.random_cuts import RandomCuts, decided_by
from midstream.testing.random_places import RandomPlaces, hashes_of, placed_by
from midstream.values import Micros

GROUPS = 16
STRATEGIES = ("moving_state", "parallel_track", "hybrid")
ANY_TIME = BalanceSettings(mode="lazy_disk", pause=Micros(0))
MAX_DRAINS = 200
COUNTS = st.sampled_from([1, 2, 3, 4, 7, 16])


@dataclass(frozen=True)
class Course:
    """What happens before some of the epochs."""

    case: Case
    rescales: dict[int, int]
    restarts: dict[int, int | None]
    """The numbers of partitions that the query is started again with; None goes on with what it has."""
    migrations: dict[int, tuple[Plan, str, bool]]
    cuts: RandomCuts | None
    places: RandomPlaces | None
    background_epochs: int | None
    limits: dict[int, tuple[MemorySettings | None, BalanceSettings]] = field(default_factory=dict)
    """The budget and the balance from an epoch on where it starts again, or from the beginning."""
    stores: MemoryStore = field(default_factory=MemoryStore)

    def run(self) -> InlineJoin:
        case, store = self.case, self.stores
        within = self._within(case.settings, -1)
        tables: list[pa.Table] = []
        partitions = within.partitions
        hashes = hashes_of(case.query, case.plan, case.epochs) if self.places is not None else {}
        places = replace(self.places, hashes=hashes) if self.places is not None else None
        with decided_by(self.cuts), placed_by(places):
            join = InlineJoin(case.query, case.plan, settings=within, store=store)
            for number, epoch in enumerate([*case.epochs, {}, {}]):
                if number in self.restarts:
                    # What has no epoch yet begins anew.
                    asked = self.restarts[number] or (None if number else within.partitions)
                    within = self._within(within, number)
                    settings = replace(within, partitions=asked, shares=())
                    join = InlineJoin(case.query, settings=settings, store=store)
                if number in self.rescales:
                    join.rescale(self.rescales[number])
                if number in self.migrations:
                    self._migrate(join, *self.migrations[number])
                drains = number >= len(case.epochs)
                tables.append(join.run_epoch(epoch, background_epochs=self.background_epochs, drains=drains))
                # The newest word counts; a start without one undoes nothing.
                partitions = self.rescales.get(number) or self.restarts.get(number) or partitions
                assert join.partitions == partitions
                assert fsck(store).problems == ()
            # Within a real budget, an epoch makes only so much of what is owed.
            for _ in range(MAX_DRAINS):
                if not join.coordinator.owes(join.manifest):
                    break
                tables.append(join.run_epoch({}, background_epochs=self.background_epochs, drains=True))
            assert not join.coordinator.owes(join.manifest)
            # What parallel track defers comes when it ends, which may be when everything has expired.
            tables += self._end_migration(join)
        accepted = accept(case.query, case.epochs, case.settings.idle_timeout).tables(case.query)
        assert_same_rows(pa.concat_tables(tables), batch_join(case.query, accepted))
        return join

    def _within(self, settings: Settings, epoch: int) -> Settings:
        if self.cuts is not None:
            return replace(settings, memory=MemorySettings(1), balance=ANY_TIME)
        if epoch not in self.limits:
            return settings
        memory, balance = self.limits[epoch]
        return replace(settings, memory=memory, balance=balance)

    def _migrate(self, join: InlineJoin, plan: Plan, strategy: str, background: bool) -> None:
        try:
            join.migrate(plan, strategy, background="auto" if background else "off")
        except OptionError:
            # It would wait for ever, since some streams have no window.
            join.migrate(plan, "moving_state")

    def _end_migration(self, join: InlineJoin) -> list[pa.Table]:
        if join.manifest.migration is None or join.manifest.migration.strategy != "parallel_track":
            return []
        deferred = [s for s in join.manifest.slices if s.owner.kind == "deferred"]
        return [join.query.select_outputs(table) for table in map(self._read, deferred)]

    def _read(self, slice_) -> pa.Table:
        from midstream.storage.slice_files import SliceFiles

        return SliceFiles(self.stores).open(slice_)


@st.composite
def courses(draw: st.DrawFn, spills: bool = True) -> Course:
    case = draw(cases(max_streams=4, max_epochs=9, max_results=800))
    case = replace(case, settings=replace(case.settings, partitions=draw(COUNTS), groups=GROUPS))
    epochs = st.integers(0, len(case.epochs))
    requests = st.tuples(plans(case.query.names), st.sampled_from(STRATEGIES), st.booleans())
    rate = draw(st.sampled_from([0.0, 0.0, 0.3])) if spills else 0.0
    moved_at_once = draw(st.sampled_from([0, 50_000]))
    case = replace(case, settings=replace(case.settings, rows_moved_at_once=moved_at_once))
    return Course(
        case,
        rescales=draw(st.dictionaries(epochs, COUNTS, max_size=5)),
        restarts=draw(st.dictionaries(epochs, st.none() | COUNTS, max_size=3)),
        migrations=draw(st.dictionaries(epochs, requests, max_size=2)),
        cuts=RandomCuts(draw(st.integers(0, 1 << 30)), spill_rate=rate),
        places=RandomPlaces(
            draw(st.integers(0, 1 << 30)),
            change_rate=draw(st.sampled_from([0.0, 0.4, 0.8])),
            group_rate=draw(st.sampled_from([0.1, 0.5])),
        ),
        background_epochs=draw(st.sampled_from([None, 0, 1, 2])),
    )


def limits() -> st.SearchStrategy[tuple[MemorySettings | None, BalanceSettings]]:
    """Budgets that are passed soon, and balance that is soon due."""
    seconds = st.sampled_from([0, 20]).map(lambda s: Micros(s * 1_000_000))
    budget = st.builds(
        MemorySettings,
        budget=st.sampled_from([200, 1_000, 4_000]),
        strategy=st.sampled_from(list(SPILL_STRATEGIES)),
        spill_share=st.sampled_from([0.1, 0.3, 0.9]),
        cleanup_delay=st.none() | seconds,
    )
    balance = st.builds(
        BalanceSettings,
        mode=st.sampled_from(BALANCE_MODES[::-1]),
        threshold=st.sampled_from([1.0, 0.8, 0.0]),
        pause=seconds,
        productivity_ratio=st.sampled_from([1.0, 2.0]),
        forced_spill=st.sampled_from([1_000, None]),
    )
    return st.tuples(budget | budget | st.none(), balance)


@st.composite
def courses_within_limits(draw: st.DrawFn) -> Course:
    """Courses in which the production code decides about memory, balance and hot keys."""
    course = draw(courses())
    settings = course.case.settings
    partitions = settings.partitions or 1
    shares = draw(st.just(()) | st.tuples(st.just(3), *[st.integers(0, 2)] * (partitions - 1)))
    return replace(
        course,
        case=replace(course.case, settings=replace(settings, shares=shares)),
        cuts=None,
        places=None,
        limits={at: draw(limits()) for at in (-1, *course.restarts)},
    )


@pytest.fixture(autouse=True, scope="module")
def merging_by_twos():
    with mock.patch("midstream.state.compaction.FAN_IN", 2):
        yield


@given(courses())
def test_the_number_of_partitions_may_change_at_any_time(course):
    course.run()


@given(courses_within_limits())
def test_as_production_decides_with_any_limits(course):
    """Every strategy, real budgets that change at restarts, balance, hot keys, migrations and rescaling."""
    with mock.patch.object(hot_keys, "MIN_WORK", 1.0), mock.patch.object(hot_keys, "OVERLOAD", 1.1):
        course.run()
