"""Requests for another number of partitions: taken, refused, kept, applied once, and made to wait."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from dataclasses import replace as replace_field
from functools import partial
from typing import Any

import pyarrow as pa
import pytest
from msgspec.structs import replace

from midstream.adapt.policy import MigrationPolicy
from midstream.errors import CheckpointError, OptionError
from midstream.inline import InlineJoin
from midstream.plan.state_id import StateId
from midstream.protocol.rescaling import check_routings, may_rescale
from midstream.protocol.settings import Settings
from midstream.runtime.crash_points import POINTS
from midstream.state.manifest import Manifest
from midstream.state.routing_table import RoutingTable, Spread
from midstream.state.slices import SliceOwner
from midstream.state.upgrade import upgrade_manifest
from midstream.storage.memory_store import MemoryStore
from midstream.storage.numbered_requests import REQUESTS
from midstream.testing import assert_same_rows
from midstream.testing.faults import SimulatedCrash
from tests.helpers import die_at, rows, small_query

QUERY = small_query(["a.k = b.k", "b.k = c.k"], "abc", default_window=100)
SETTINGS = Settings(2, 16)
ANY_PARTITIONS = Settings(None, 16)
"""Of a start that does not say how many."""


def epoch(number: int) -> dict[str, pa.Table]:
    return {name: rows(*((number, key, number, name) for key in range(20))) for name in "abc"}


def begun(store: MemoryStore | None = None, settings: Settings = SETTINGS) -> InlineJoin:
    join = InlineJoin(QUERY, settings=settings, store=store)
    join.run_epoch(epoch(0))
    return join


def events(join: InlineJoin) -> list[dict[str, Any]]:
    assert join.lastProgress is not None
    return [e for e in join.lastProgress["events"] if "rescale" in e["type"]]


def test_a_query_goes_on_with_other_partitions_from_the_next_epoch_on():
    join, other = begun(), begun()
    join.rescale(5)
    assert join.partitions == 2
    assert_same_rows(join.run_epoch(epoch(1)), other.run_epoch(epoch(1)))
    assert join.partitions == 5
    assert join.manifest.routings == (RoutingTable(0, 2), RoutingTable(1, 5))
    assert [(e["type"], e["before"], e["partitions"]) for e in events(join)] == [("rescaled", 2, 5)]
    assert join.store.list(REQUESTS) == []
    join.run_epoch(epoch(2))
    assert events(join) == []


def test_of_several_requests_the_last_counts():
    join = begun()
    for partitions in (7, 3, 4):
        join.rescale(partitions)
    join.run_epoch({})
    assert [table.partitions for table in join.manifest.routings] == [2, 4]


def test_the_number_that_there_is_changes_nothing():
    join = begun()
    join.rescale(2)
    join.run_epoch({})
    assert join.manifest.routings == (RoutingTable(0, 2),)
    assert events(join) == []


def test_a_request_survives_a_restart_and_is_applied_once():
    join = begun(store := MemoryStore())
    join.rescale(5)
    restarted = InlineJoin(QUERY, settings=ANY_PARTITIONS, store=store)
    restarted.run_epoch(epoch(1))
    assert restarted.partitions == 5
    again = InlineJoin(QUERY, settings=ANY_PARTITIONS, store=store)
    again.run_epoch(epoch(2))
    assert again.partitions == 5
    # It is started with two again: the later word counts.
    last = InlineJoin(QUERY, settings=SETTINGS, store=store)
    last.run_epoch(epoch(3))
    assert last.partitions == 2


def test_a_start_with_a_number_counts_more_than_a_request_that_waits():
    begun(store := MemoryStore()).rescale(5)
    join = InlineJoin(QUERY, settings=SETTINGS, store=store)
    assert len(store.list(REQUESTS)) == 2
    # A start that asks for the same asks for nothing new.
    InlineJoin(QUERY, settings=SETTINGS, store=store)
    assert len(store.list(REQUESTS)) == 2
    join = InlineJoin(QUERY, settings=SETTINGS, store=store)
    join.run_epoch(epoch(1))
    assert (join.partitions, store.list(REQUESTS)) == (2, [])


def test_a_start_with_a_number_counts_more_than_one_before_that_ran_no_epoch():
    begun(store := MemoryStore())
    InlineJoin(QUERY, settings=Settings(5, 16), store=store)
    join = InlineJoin(QUERY, settings=SETTINGS, store=store)
    join.run_epoch(epoch(1))
    assert join.partitions == 2


@pytest.mark.parametrize(("settings", "after"), [(SETTINGS, 2), (Settings(5, 16), 5), (ANY_PARTITIONS, 5)])
@pytest.mark.parametrize("is_deleted", [False, True])
def test_a_start_goes_on_from_the_partitions_of_the_epoch_that_is_begun(settings, after, is_deleted):
    join = begun(store := MemoryStore())
    join.rescale(5)
    with die_at("after the step"), pytest.raises(SimulatedCrash):
        join.run_epoch(epoch(1))
    if is_deleted:
        # As after a commit whose manifest was damaged.
        store.delete(f"{REQUESTS}/partitions-000001")
    again = InlineJoin(QUERY, settings=settings, store=store)
    again.run_epoch(epoch(1))
    assert again.partitions == 5
    again.run_epoch(epoch(2))
    assert (again.partitions, store.list(REQUESTS)) == (after, [])
    assert len(again.manifest.routings) == (3 if after == 2 else 2)


@pytest.mark.parametrize("point", POINTS[: POINTS.index("after the commit")])
def test_an_epoch_that_was_begun_keeps_its_partitions(point):
    join = begun(store := MemoryStore())
    join.rescale(5)
    with die_at(point), pytest.raises(SimulatedCrash):
        join.run_epoch(epoch(1))
    again = InlineJoin(QUERY, settings=Settings(3, 16), store=store)
    again.run_epoch(epoch(1))
    assert again.partitions == 5
    again.run_epoch(epoch(2))
    assert again.partitions == 3


@pytest.mark.parametrize(
    ("partitions", "got"), [(0, "0"), (513, "513"), ("4", "'4'"), (2.0, "2.0"), (True, "True")]
)
def test_a_number_that_cannot_be_is_refused(partitions, got):
    with pytest.raises(OptionError, match=f"partitions must be a whole number from 1 to 512; got {got}"):
        begun().rescale(partitions)


def test_more_partitions_than_groups_are_refused():
    with pytest.raises(OptionError, match="groups must be at least as many as partitions; got 16 and 17"):
        begun().rescale(17)
    store = MemoryStore()
    begun(store)
    with pytest.raises(OptionError, match="groups must be at least as many as partitions; got 16 and 17"):
        InlineJoin(QUERY, settings=Settings(17, 16), store=store)


def test_a_plan_that_is_forbidden_in_several_partitions_keeps_one():
    query = small_query(["a.k = b.k", "b.j = c.j"], "abc", default_window=100)
    settings = Settings(1, 16, single_partition="forbid", policy=MigrationPolicy())
    join = InlineJoin(query, "(a c) b", settings=settings)
    join.run_epoch({})
    with pytest.raises(OptionError, match="singlePartition"):
        join.rescale(2)


FORBIDS = Settings(1, 16, single_partition="forbid", policy=MigrationPolicy())
TWO_KEYS = small_query(["a.k = b.k", "b.j = c.j"], "abc", default_window=100)


@pytest.mark.parametrize("restarts", [False, True])
def test_a_plan_that_is_forbidden_in_the_partitions_to_come_is_refused(restarts):
    join = InlineJoin(TWO_KEYS, "(a b) c", settings=FORBIDS, store=(store := MemoryStore()))
    join.run_epoch(epoch(0))
    join.rescale(4)
    if restarts:
        join = InlineJoin(TWO_KEYS, settings=replace_field(FORBIDS, partitions=None), store=store)
    with pytest.raises(OptionError, match="singlePartition"):
        join.migrate("(a c) b", "moving_state")


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("begins", [False, True])
def test_partitions_that_forbid_the_plan_to_come_are_refused(begins, restarts):
    join = InlineJoin(TWO_KEYS, "(a b) c", settings=FORBIDS, store=(store := MemoryStore()))
    join.run_epoch(epoch(0))
    join.migrate("(a c) b", "hybrid")
    if begins:
        join.run_epoch(epoch(1), background_epochs=0)
        assert join.manifest.migration is not None
    if restarts:
        join = InlineJoin(TWO_KEYS, settings=replace_field(FORBIDS, partitions=None), store=store)
    with pytest.raises(OptionError, match="singlePartition"):
        join.rescale(4)


def test_partitions_that_forbid_the_plan_of_a_begun_epoch_are_refused():
    join = InlineJoin(TWO_KEYS, "(a b) c", settings=FORBIDS, store=(store := MemoryStore()))
    join.run_epoch(epoch(0))
    join.migrate("(a c) b", "moving_state")
    with die_at("after the step"), pytest.raises(SimulatedCrash):
        join.run_epoch(epoch(1))
    # As after a commit whose manifest was damaged.
    store.delete(f"{REQUESTS}/000001")
    join = InlineJoin(TWO_KEYS, settings=FORBIDS, store=store)
    with pytest.raises(OptionError, match="singlePartition"):
        join.rescale(4)
    join.run_epoch(epoch(1))
    assert join.manifest.plan == "(a c) b"
    # One that leaves the plan first may have more.
    join.migrate("(a b) c", "moving_state")
    with pytest.raises(OptionError, match="singlePartition"):
        join.rescale(4)
    join.run_epoch(epoch(2))
    join.rescale(4)


def test_a_request_of_a_version_that_wrote_no_digest_is_applied():
    join = begun(store := MemoryStore())
    store.put(f"{REQUESTS}/partitions-000001", b"8")
    join = InlineJoin(QUERY, settings=ANY_PARTITIONS, store=store)
    join.run_epoch({})
    assert join.partitions == 8


def test_a_damaged_request_is_refused_by_name():
    begun(store := MemoryStore())
    store.put(f"{REQUESTS}/partitions-000001", b'"many"')
    with pytest.raises(
        CheckpointError, match=r"in requests/partitions-000001 must be readable.*delete requests/"
    ):
        InlineJoin(QUERY, settings=SETTINGS, store=store)


@pytest.mark.parametrize(("data", "got"), [(b"0", "0"), (b"-3", "-3"), (b"700", "700"), (b"17", "16 and 17")])
def test_a_request_for_a_number_that_cannot_be_is_refused_by_name(data, got):
    # One flipped bit makes 8 a 0: an epoch in no partition would have no rows.
    begun(store := MemoryStore())
    store.put(f"{REQUESTS}/partitions-000001", data)
    with pytest.raises(
        CheckpointError, match=f"in requests/partitions-000001 .*; got {got}.*delete requests/"
    ):
        InlineJoin(QUERY, settings=SETTINGS, store=store)
    store.delete(f"{REQUESTS}/partitions-000001")
    join = InlineJoin(QUERY, settings=SETTINGS, store=store)
    join.run_epoch(epoch(1))
    assert join.partitions == 2


def moved_by_an_earlier_version(manifest: Manifest) -> Manifest:
    """The same, but its rows of c were moved by migration 3, before the format of now."""
    slices = tuple(
        replace(s, owner=SliceOwner(s.owner.kind, StateId("c@3"), s.owner.key, s.owner.partition))
        if s.owner.state == "c"
        else s
        for s in manifest.slices
    )
    return replace(manifest, slices=slices, ambiguous_migrations=3, unambiguous_since=manifest.epoch + 1)


def test_rows_that_an_earlier_version_has_moved_stay_in_their_partition(monkeypatch):
    manifest = begun().manifest
    assert may_rescale(manifest)
    moved = moved_by_an_earlier_version(manifest)
    assert not may_rescale(moved)
    assert may_rescale(replace(moved, ambiguous_migrations=2))
    # Rows that have come since are in states that it has begun, too.
    assert may_rescale(replace(moved, unambiguous_since=0))
    fields = {
        "epoch": 7,
        "definition": {"options": {"partitions": 3, "groups": 8}, "select": []},
        "migrations": 2,
    }
    upgraded = upgrade_manifest(fields, 6, 7)
    assert (upgraded["ambiguous_migrations"], upgraded["unambiguous_since"]) == (2, 8)
    assert upgraded["routings"] == [{"since": 0, "partitions": 3}]
    assert upgraded["definition"]["options"] == {"groups": 8}


def test_a_request_waits_as_long_as_there_are_such_rows(monkeypatch):
    join = begun()
    join.rescale(5)
    monkeypatch.setattr("midstream.runtime.next_changes.may_rescale", lambda _manifest: False)
    join.run_epoch(epoch(1))
    assert (join.partitions, join.manifest.waiting_partitions) == (2, 5)
    assert [(e["type"], e["partitions"]) for e in events(join)] == [("rescale-waits", 5)]
    join.run_epoch(epoch(2))
    assert events(join) == []
    monkeypatch.undo()
    join.run_epoch(epoch(3))
    assert (join.partitions, join.manifest.waiting_partitions) == (5, 0)


@pytest.mark.parametrize(
    "routings",
    [
        (),
        (RoutingTable(0, 0),),
        (RoutingTable(0, 17),),
        (RoutingTable(0, 2), RoutingTable(9, 3)),
        (RoutingTable(1, 2), RoutingTable(0, 3)),
        (RoutingTable(-1, 2),),
        (RoutingTable(0, 2, shares=(1, 1, 1)),),
        (RoutingTable(0, 2, shares=(0, 1)),),
        (RoutingTable(0, 2, moved={"0": {0: 1}}),),
        (RoutingTable(0, 2, moved={"0": {3: 2}}),),
        (RoutingTable(0, 2, moved={"0": {16: 1}}),),
        (RoutingTable(0, 2, spread={"0": {1: Spread((0,), "a")}}),),
        (RoutingTable(0, 2, spread={"0": {1: Spread((1, 2), "a")}}),),
        (RoutingTable(0, 2, spread={"0": {1: Spread((1, 1), "a")}}),),
    ],
)
def test_routings_that_cannot_be_are_refused(routings):
    manifest = replace(begun().manifest, routings=routings)
    with pytest.raises(CheckpointError, match="must have routings that its groups and epochs allow"):
        check_routings(manifest, 16)


def test_a_slice_of_a_partition_that_there_was_not_is_refused():
    manifest = begun().manifest
    other = replace(manifest.slices[0], owner=replace(manifest.slices[0].owner, partition=2))
    for slice_ in (other, replace(manifest.slices[0], placed=1)):
        with pytest.raises(CheckpointError, match="a slice must belong to a partition that existed"):
            check_routings(replace(manifest, slices=(slice_,)), 16)


@pytest.mark.parametrize(("before", "after"), [(16, 1), (1, 16), (16, 3), (3, 16)])
def test_an_epoch_after_a_change_searches_no_more_than_one_before(before, after):
    """A row is searched for in the slices of the partition that had its group, not in those of all others."""
    keys = range(200)
    arrivals = {name: rows(*((0, key, 0, name) for key in keys)) for name in "abc"}
    join = InlineJoin(QUERY, settings=Settings(before, 16))
    probes: list[int] = []
    for number in range(24):
        if number == 10:
            join.rescale(after)
        join.run_epoch({} if number < 10 and number % 3 else arrivals)
        probes.append(join.report.work.probes)
    assert probes[9] > 0
    # New slices of the partitions come to those of before.
    assert max(probes[10:12]) < 1.5 * probes[9]


@dataclass(frozen=True)
class _SlowRequests(MemoryStore):
    """A store that waits before it writes a request."""

    begun: threading.Event = field(default_factory=threading.Event)
    goes_on: threading.Event = field(default_factory=threading.Event)

    def put_if_absent(self, name: str, data: pa.Buffer | bytes) -> bool:
        if name.startswith(REQUESTS):
            self.begun.set()
            assert self.goes_on.wait(60)
        return super().put_if_absent(name, data)


@pytest.mark.parametrize("first", ["plan", "partitions"])
def test_two_threads_cannot_ask_for_what_is_forbidden_together(first):
    store = _SlowRequests()
    join = InlineJoin(TWO_KEYS, "(a b) c", settings=FORBIDS, store=store)
    asks = [partial(join.migrate, "(a c) b", "moving_state"), partial(join.rescale, 4)]
    one, other = asks if first == "plan" else reversed(asks)
    with ThreadPoolExecutor(2) as threads:
        taken = threads.submit(one)
        assert store.begun.wait(60)
        refused = threads.submit(other)
        # It must wait until the first request is kept, or it would know nothing of it.
        with pytest.raises(TimeoutError):
            refused.result(0.2)
        store.goes_on.set()
        taken.result(60)
        with pytest.raises(OptionError, match="singlePartition"):
            refused.result(60)
