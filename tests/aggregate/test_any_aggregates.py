"""Any query, aggregates, plan, epochs, migrations, cuts, restarts: windows are those of DuckDB, once each."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from midstream.memory.balance import BalanceSettings
from midstream.memory.settings import MemorySettings
from midstream.migration.request import BackgroundChoice
from midstream.storage.fsck import check as fsck
from midstream.testing.hypothesis_aggregates import aggregated
from midstream.testing.hypothesis_strategies import cases
from midstream.testing.random_cuts import RandomCuts, decided_by
from midstream.testing.random_places import RandomPlaces, hashes_of, placed_by
from midstream.values import Micros
from tests.aggregate.aggregate_run import AggregateRun
from tests.migration.migration_schedules import migration_schedules


@given(st.data())
def test_windows_are_those_of_the_batch_join(data):
    case = data.draw(cases(max_streams=4, max_results=1500))
    run = AggregateRun(data.draw(aggregated(case.query)), case.plan, case.settings).process(case.epochs)
    run.check()
    run.finish()


@given(st.data())
def test_windows_wait_for_nothing_but_watermarks_without_migrations_and_cuts(data):
    case = data.draw(cases(max_streams=4, max_results=500))
    query = data.draw(aggregated(case.query))
    run = AggregateRun(query, case.plan, case.settings).process(case.epochs)
    stream, width = query.aggregation.windows.stream, query.windows.width
    marks = {name: progress.watermark for name, progress in run.join.manifest.streams.items()}
    run.process([{}])
    if None in marks.values():
        assert run.bounds[-1] is None
        return
    reach = {n: 0 if stream is None or n == stream else width(stream, n) or 0 for n in query.names}
    # Idle streams follow the others, so watermarks, and what follows from them, never go back.
    assert run.bounds[-1] == min(mark - reach[n] for n, mark in marks.items() if mark is not None)


@given(st.data())
def test_windows_wait_for_what_is_owed_and_deferred(data):
    case = data.draw(cases(max_streams=5, max_epochs=7, max_results=1500))
    query = data.draw(aggregated(case.query))
    schedule = data.draw(migration_schedules(case, with_stops=True)) if data.draw(st.booleans()) else None
    cuts = data.draw(st.integers(0, 1 << 30)) if data.draw(st.booleans()) else None
    # Each partition has a group at least.
    counts = st.sampled_from([n for n in (1, 2, 3, 4) if n <= case.settings.groups])
    rescales = data.draw(st.dictionaries(st.integers(0, 6), counts, max_size=3))
    settings = case.settings if cuts is None else replace(case.settings, memory=MemorySettings(1))
    places = data.draw(st.integers(0, 1 << 30)) if data.draw(st.booleans()) else None
    if places is not None:
        settings = replace(settings, balance=BalanceSettings(mode="lazy_disk", pause=Micros(0)))
    hashes = hashes_of(case.query, case.plan, case.epochs)
    by_chance = None if places is None else RandomPlaces(places, hashes=hashes)
    with decided_by(None if cuts is None else RandomCuts(cuts)), placed_by(by_chance):
        run = AggregateRun(query, case.plan, settings)
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
            run.process([epoch], background_epochs=None if schedule is None else schedule.paces[number])
        run.check()
        assert not fsck(run.store).problems
        run.process([{}, {}], drains=True)
        run.check()
        if run.join.manifest.migration is None:
            run.finish()
