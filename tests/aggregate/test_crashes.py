"""A process that dies at any of its crash points, again and again: every window leaves once."""

from __future__ import annotations

import random
from dataclasses import replace

import pyarrow as pa
import pytest

from midstream.inline import InlineJoin
from midstream.protocol.settings import Settings
from midstream.runtime.crash_points import crash_hook
from midstream.storage.fsck import check as fsck
from midstream.testing import accept, generate
from midstream.testing.aggregate_oracle import aggregate_windows, aggregation_of, assert_same_windows
from midstream.testing.faults import FaultStore, SimulatedCrash
from midstream.testing.store_sink import StoreSink
from tests.aggregate.aggregate_run import SHAPE, aggregated_query

EPOCHS = generate(dict.fromkeys("abc", SHAPE), epochs=8, seed=3)
SETTINGS = Settings(2, 8)


def _run_and_die(every: int) -> tuple[int, int]:
    """Die again and again, each time a little later; gives how often it died, and how many windows left."""
    query = aggregated_query()
    store = FaultStore(random.Random(every))
    sink = StoreSink(store)
    passed = deaths = 0

    def hook(point: str) -> None:
        nonlocal passed, deaths
        passed += 1
        # Later and later, so that it gets on.
        if passed >= every * (1 + deaths):
            passed = 0
            deaths += 1
            raise SimulatedCrash(point)

    done = -1
    while done < len(EPOCHS) - 1:
        try:
            with crash_hook(hook):
                join = InlineJoin(query, settings=SETTINGS, store=store, sink=sink)
                while join.manifest.epoch < len(EPOCHS) - 1:
                    join.run_epoch(EPOCHS[join.manifest.epoch + 1])
            done = join.manifest.epoch
        except SimulatedCrash:
            continue
    join = InlineJoin(query, settings=SETTINGS, store=store, sink=sink)
    join.drain()
    assert not fsck(store).problems
    got = sink.published(query.output_schema, join.manifest.epoch)
    want = aggregate_windows(query, accept(query, EPOCHS).tables(query), until=join.manifest.emitted)
    assert_same_windows(got, want, query)
    return deaths, got.num_rows


@pytest.mark.parametrize("every", [7, 11, 13, 17, 29, 41])
def test_windows_leave_once(every):
    deaths, windows = _run_and_die(every)
    assert deaths > 0
    assert windows > 20


@pytest.mark.parametrize("updates", [False, True])
def test_an_epoch_that_runs_again_writes_the_same(updates):
    """Attempts of an epoch give the same slices, bit by bit: their names are digests of what is in them."""
    query = aggregated_query()
    query = replace(query, aggregation=replace(aggregation_of(query), is_update_mode=updates))
    names = []
    for _ in range(2):
        join = InlineJoin(query, settings=SETTINGS)
        tables = [join.run_epoch(epoch) for epoch in EPOCHS]
        partial = [s for s in join.manifest.slices if s.owner.kind == "partial"]
        names.append(([s.sha256 for s in partial], pa.concat_tables(tables)))
    assert names[0][0] == names[1][0]
    assert names[0][1].equals(names[1][1])
