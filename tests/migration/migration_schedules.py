"""Migrations at any time: which are requested before which epochs, and runs that are compared with others."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import pyarrow as pa
from hypothesis import strategies as st

from midstream.errors import OptionError
from midstream.inline import InlineJoin
from midstream.migration.request import MigrationRequest, make_request
from midstream.plan.tree import Plan, parse_plan
from midstream.query.query import Query
from midstream.storage.memory_store import MemoryStore
from midstream.storage.slice_files import SliceFiles
from midstream.testing import accept, assert_same_rows, batch_join
from midstream.testing.hypothesis_strategies import Case, plans
from tests.migration.migration_cases import STRATEGY_CASES, StrategyCase


@dataclass(frozen=True)
class MigrationSchedule:
    """Which migrations are requested before which epochs, how much is rebuilt, and restarts."""

    requests: Mapping[int, MigrationRequest]
    paces: tuple[int | None, ...]
    stops: frozenset[int] = frozenset()


def _request(query: Query, plan: Plan, how: StrategyCase) -> MigrationRequest:
    return make_request(query, str(plan), how.strategy, background=how.background, isolated=how.isolated)


def _is_possible(query: Query, plan: Plan, how: StrategyCase) -> bool:
    try:
        _request(query, plan, how)
    except OptionError:
        return False
    return True


@st.composite
def migration_schedules(draw: st.DrawFn, case: Case, *, with_stops: bool = False) -> MigrationSchedule:
    """Requests before some epochs, possibly several in a row."""
    possible = [how for how in STRATEGY_CASES if _is_possible(case.query, case.plan, how)]
    count = len(case.epochs)
    request_epochs = draw(st.sets(st.integers(0, count - 1), min_size=1, max_size=4))
    requests = {}
    for epoch in sorted(request_epochs):
        how = draw(st.sampled_from(possible))
        plan = draw(plans(case.query.names))
        requests[epoch] = _request(case.query, plan, how)
    background_epochs = st.sampled_from([1, 2, None, 0])
    paces = tuple(draw(st.lists(background_epochs, min_size=count, max_size=count)))
    stops = draw(st.frozensets(st.integers(1, count))) if with_stops else frozenset()
    return MigrationSchedule(requests, paces, stops)


@dataclass
class MigratedRun:
    """A run with migrations, compared after every epoch with one without."""

    case: Case
    schedule: MigrationSchedule
    store: MemoryStore = field(default_factory=MemoryStore)
    tables: list[pa.Table] = field(default_factory=list)
    late: dict[str, int] = field(default_factory=dict)

    def run_all_epochs(self) -> InlineJoin:
        case = self.case
        join = InlineJoin(case.query, case.plan, settings=case.settings, store=self.store)
        unchanged = InlineJoin(case.query, case.plan, settings=case.settings)
        waiting: MigrationRequest | None = None
        expected_plan, begun = case.plan, 0
        for number, epoch in enumerate(case.epochs):
            if number in self.schedule.stops:
                join = InlineJoin(case.query, settings=case.settings, store=self.store)
            if number in self.schedule.requests:
                waiting = self.schedule.requests[number]
                join.migrate(
                    waiting.plan,
                    waiting.strategy,
                    background="auto" if waiting.background else "off",
                    isolated=waiting.isolated,
                )
            # The last request is applied by the next epoch without a migration in progress.
            if join.manifest.migration is None and waiting is not None:
                begun += waiting.plan != expected_plan
                expected_plan, waiting = waiting.plan, None
            earlier = {name: len(tables) for name, tables in join.late.items()}
            self.tables.append(join.run_epoch(epoch, background_epochs=self.schedule.paces[number]))
            for name, tables in join.late.items():
                rows = sum(table.num_rows for table in tables[earlier[name] :])
                self.late[name] = self.late.get(name, 0) + rows
            unchanged.run_epoch(epoch)
            manifest = join.manifest
            assert manifest.streams == unchanged.manifest.streams
            assert manifest.migrations == begun
            running = manifest.migration
            assert (
                parse_plan(running.new_plan if running else manifest.plan, case.query.names) == expected_plan
            )
        assert self.late == {name: sum(t.num_rows for t in ts) for name, ts in unchanged.late.items()}
        return join


def _deferred_results(join: InlineJoin) -> list[pa.Table]:
    """Results that parallel track still defers, read from the store."""
    files = SliceFiles(join.store)
    return [files.open(s) for s in join.manifest.slices if s.owner.kind == "deferred"]


def _oracle(case: Case) -> pa.Table:
    return batch_join(
        case.query, accept(case.query, case.epochs, case.settings.idle_timeout).tables(case.query)
    )


def check_migrations(case: Case, schedule: MigrationSchedule) -> MigratedRun:
    run = MigratedRun(case, schedule)
    join = run.run_all_epochs()
    deferred = _deferred_results(join)
    running = join.manifest.migration
    assert not deferred or (running is not None and running.strategy == "parallel_track")
    assert_same_rows(pa.concat_tables([*run.tables, *deferred]), _oracle(case))
    assert join.manifest.results == sum(table.num_rows for table in run.tables)
    return run
