"""Faults of places that are put into the code on purpose: random places, cuts and rescaling find them."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import replace
from unittest import mock

import numpy as np
import pyarrow as pa
import pytest

from midstream.engine import intake, references
from midstream.engine.index_rows import IndexRows, merge_rows
from midstream.engine.key_places import KeyPlaces
from midstream.engine.places import Places
from midstream.engine.program import Program
from midstream.engine.stored_states import StoredStates
from midstream.errors import InternalError
from midstream.inline import InlineJoin
from midstream.memory.balance import BalanceSettings
from midstream.memory.next_step import MemoryContext
from midstream.memory.settings import MemorySettings
from midstream.plan.layout import Key
from midstream.state.slices import Slice
from midstream.testing import accept, assert_same_rows, batch_join
from midstream.testing.random_cuts import RandomCuts, decided_by
from midstream.testing.random_places import RandomPlaces, hashes_of, placed_by
from midstream.testing.workload import draw_workload
from midstream.values import Micros

GROUPS = 16
ANY_TIME = BalanceSettings(mode="lazy_disk", pause=Micros(0))


@pytest.fixture(autouse=True, scope="module")
def merging_by_twos():
    """A few epochs are enough for several levels of merged slices."""
    with mock.patch("midstream.state.compaction.FAN_IN", 2):
        yield


def run_seed(seed: int) -> None:
    """A random workload, with its migrations, cuts at random, and other partitions in half of the epochs."""
    rng = random.Random(seed)
    workload = draw_workload(rng, seed)
    settings = replace(workload.settings, groups=GROUPS, adapt=False, max_event_time_ahead=None)
    settings = replace(settings, memory=MemorySettings(1), balance=ANY_TIME)
    cuts = RandomCuts(seed, rng.choice((0.0, 0.1)), 0.3)
    hashes = hashes_of(workload.query, workload.plan, workload.epochs)
    places = RandomPlaces(seed, 0.5, rng.choice((0.0, 0.5)), hashes)
    with decided_by(cuts), placed_by(places):
        join = InlineJoin(workload.query, workload.plan, settings=settings)
        tables = []
        for number, epoch in enumerate([*workload.epochs, {}, {}]):
            if rng.random() < 0.5:
                join.rescale(rng.randint(1, GROUPS))
            if number in workload.requests:
                request = workload.requests[number]
                join.migrate(request.plan, "moving_state" if seed % 2 else "hybrid", background="auto")
            drains = number >= len(workload.epochs)
            tables.append(join.run_epoch(epoch, background_epochs=1, drains=drains))
    accepted = accept(workload.query, workload.epochs, settings.idle_timeout).tables(workload.query)
    assert_same_rows(pa.concat_tables(tables), batch_join(workload.query, accepted))


def _undivided(
    _program: Program, partition: int, runs: list[IndexRows], **_: bool
) -> Iterator[tuple[int, IndexRows]]:
    yield partition, merge_rows(runs)


_segment_of = references.backfilled_segment_of


def _same_in_all(epoch: int, _partition: int, _partitions: int, batch: int) -> int:
    return _segment_of(epoch, 0, 1, batch)


def _last_table(places: Places, slice_: Slice) -> tuple[int, int]:
    number = [table.since for table in places.tables].index(slice_.placed)
    return number, number + 1


def _all_streams(context: MemoryContext, _key: Key) -> frozenset[str]:
    return frozenset(context.query.names)


MUTANTS: dict[str, tuple[int, Callable[[], AbstractContextManager[object]]]] = {
    "everybody reads only what it wrote": (
        1,
        lambda: mock.patch.object(Places, "readers", lambda _, slice_: (slice_.owner.partition,)),
    ),
    "who merges rows keeps those of others": (
        44,
        lambda: mock.patch("midstream.engine.merge_slices._by_partition", _undivided),
    ),
    "everybody scans what others have": (
        81,
        lambda: mock.patch.object(StoredStates, "own_part", lambda _, run: run),
    ),
    "rows that are moved have the same references in all partitions": (
        85,
        lambda: mock.patch.object(intake, "backfilled_segment_of", _same_in_all),
    ),
    "payload is read only of the partition that has a group": (
        28,
        lambda: mock.patch.object(Places, "_tables_of", _last_table),
    ),
    "everybody has all rows of a hot key": (
        4,
        lambda: mock.patch.object(KeyPlaces, "hidden", return_value=np.empty(0, np.uint64)),
    ),
    "copies are placed anew when slices merge": (
        51,
        lambda: mock.patch.object(Places, "may_merge", return_value=True),
    ),
    "rows of a stream are dealt out that some fragment does not join": (
        154,
        lambda: mock.patch("midstream.testing.random_places.spread_streams", _all_streams),
    ),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_a_fault_of_places_gives_wrong_results(name):
    seed, fault = MUTANTS[name]
    run_seed(seed)
    with fault(), pytest.raises((AssertionError, InternalError)):
        run_seed(seed)
