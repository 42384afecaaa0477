"""A driver is paused at any point, another takes over and goes on, the first wakes up: it can do no harm."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from msgspec.structs import replace as replace_struct

from midstream.errors import CheckpointError, FencedError
from midstream.inline import InlineJoin
from midstream.protocol.intent import decode_intent, encode_intent
from midstream.protocol.settings import Settings
from midstream.query.build import build_query
from midstream.runtime.crash_points import POINTS, crash_hook
from midstream.storage.fsck import check as fsck
from midstream.storage.intents import write_or_read_intent
from midstream.storage.lease import seize_lease
from midstream.storage.local import LocalStore
from midstream.storage.memory_store import MemoryStore
from midstream.storage.output_table import OutputTable
from midstream.storage.store import Store
from midstream.testing import Shape, accept, assert_same_rows, batch_join, generate, stream
from midstream.values import Micros

SHAPE = Shape(rows=8, late=0.1)
EPOCHS = generate(dict.fromkeys("ab", SHAPE), epochs=18, seed=1)
QUERY = build_query(
    [stream(name, SHAPE) for name in "ab"],
    ["a.k = b.k"],
    default_window=Micros(8_000_000),
    select=["a.id", "b.id"],
)
SETTINGS = Settings(2, 8)


class Drivers:
    """Two drivers of one query: one is paused while the other has all of its life."""

    def __init__(self, store: Store, folder: str) -> None:
        self.store = store
        self.table = OutputTable("results", folder, "q").identified()

    def open(self) -> InlineJoin:
        lease = seize_lease(self.store, "driver")
        table = replace(self.table, lease=lease.number)
        return InlineJoin(QUERY, settings=SETTINGS, store=self.store, sink=table, lease=lease)

    def go(self, upto: int) -> None:
        query = self.open()
        while query.manifest.epoch + 1 < upto:
            query.run_epoch(EPOCHS[query.manifest.epoch + 1])

    def pause(self, point: str, epoch: int, upto: int) -> bool:
        """Pause a driver in an epoch; the other goes on up to another. Whether that point was reached."""
        paused: list[int] = []

        def hook(here: str) -> None:
            if here == point and query.manifest.epoch + 1 >= epoch and not paused:
                paused.append(1)
                self.go(upto)

        query = self.open()
        with crash_hook(hook):
            try:
                for rows in EPOCHS[: epoch + 8]:
                    query.run_epoch(rows)
            except FencedError:
                assert paused
        return bool(paused)

    def check(self) -> None:
        assert fsck(self.store).problems == ()
        self.go(len(EPOCHS))
        assert fsck(self.store).problems == ()
        assert_same_rows(pq.read_table(self.table.path), _want())


@cache
def _want() -> pa.Table:
    return batch_join(QUERY, accept(QUERY, EPOCHS).tables(QUERY))


@pytest.mark.parametrize("epoch", [0, 5], ids=["at once", "later"])
@pytest.mark.parametrize("point", POINTS)
def test_a_driver_that_was_given_up_does_no_harm(tmp_path, point, epoch):
    # By then the manifests of the epochs around the pause have been deleted, and their names would be free.
    drivers = Drivers(MemoryStore(), str(tmp_path))
    assert drivers.pause(point, epoch, epoch + 12)
    drivers.check()


@pytest.mark.parametrize("point", ["before the commit", "after the commit", "after a slice is written"])
def test_a_driver_that_was_given_up_does_no_harm_on_a_disk_and_in_an_object_store(tmp_path, remote, point):
    for number, store in enumerate((LocalStore(str(tmp_path / "checkpoint")), remote)):
        drivers = Drivers(store, str(tmp_path / f"results {number}"))
        assert drivers.pause(point, 1, 13)
        drivers.check()


@pytest.mark.parametrize("number", [0, 5])
def test_an_intent_of_another_format_is_refused_with_those_that_are_read(number):
    intent = InlineJoin(QUERY, settings=SETTINGS)._runner.new_intent(0, None)
    data = encode_intent(replace_struct(intent, format=number))
    with pytest.raises(CheckpointError, match=rf"intent 7 must have a format from 1 to 4; got {number}\."):
        decode_intent(data, "intent 7")


def test_a_query_that_two_drivers_begin_is_one_query():
    store = MemoryStore()
    paused = InlineJoin(QUERY, "b a", settings=SETTINGS, store=store)
    other = InlineJoin(QUERY, "a b", settings=SETTINGS, store=store)
    # The first wakes between looking at its lease and writing down what it is about to do.
    write_or_read_intent(store, paused._runner.new_intent(0, None))
    with pytest.raises(CheckpointError, match="must be begun by one driver only"):
        other.run_epoch(EPOCHS[0])
    again = InlineJoin(QUERY, "a b", settings=SETTINGS, store=store)
    again.run_epoch(EPOCHS[0])
    assert again.manifest.plan == "b a"


def test_a_driver_that_misses_what_its_successor_deleted_is_told_so(tmp_path):
    drivers = Drivers(MemoryStore(), str(tmp_path))
    raised: list[CheckpointError] = []

    def hook(here: str) -> None:
        if here == "before the step" and query.manifest.epoch == 5 and not raised:
            raised.append(CheckpointError("not yet"))
            drivers.go(len(EPOCHS))

    query = drivers.open()
    for epoch in EPOCHS[:6]:
        query.run_epoch(epoch)
    with crash_hook(hook), pytest.raises(FencedError, match="taken by another driver"):
        query.run_epoch(EPOCHS[6])
    drivers.check()
