"""Requests are kept once, under numbers of their own, whatever a store answers and other drivers do."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

import pyarrow as pa
import pytest
from msgspec.structs import replace

from midstream.errors import CheckpointError, FencedError
from midstream.inline import InlineJoin
from midstream.migration.request import MigrationRequest, write_request
from midstream.plan.tree import parse_plan
from midstream.storage.intents import write_or_read_intent
from midstream.storage.memory_store import MemoryStore
from midstream.storage.numbered_requests import REQUESTS
from midstream.storage.request_queue import RequestQueue
from midstream.testing.faults import FaultStore
from tests.small_case import EPOCHS, OTHER_PLAN, PLAN, QUERY, SETTINGS


@dataclass(frozen=True)
class _Interrupted(MemoryStore):
    """A store in which something happens right before or after a request is written."""

    before: list[Callable[[], None]] = field(default_factory=list)
    after: list[Callable[[], None]] = field(default_factory=list)
    """In this case the answer is lost, too."""

    def put_if_absent(self, name: str, data: pa.Buffer | bytes) -> bool:
        is_request = name.startswith(REQUESTS)
        if is_request and self.before:
            self.before.pop()()
        was_free = super().put_if_absent(name, data)
        if is_request and self.after:
            self.after.pop()()
            return False
        return was_free


def request(plan: str) -> MigrationRequest:
    return MigrationRequest(parse_plan(plan, QUERY.names), "moving_state")


def plans(store: MemoryStore) -> dict[str, bool]:
    """The files of requests, and whether each asks for the other plan."""
    return {n: OTHER_PLAN.encode() in store.read(n).to_pybytes() for n in store.list(REQUESTS)}


def test_a_request_whose_answer_is_lost_is_kept_once():
    store = _Interrupted(after=[lambda: None])
    query = InlineJoin(QUERY, PLAN, settings=SETTINGS, store=store)
    query.migrate(OTHER_PLAN, "moving_state")
    assert plans(store) == {"requests/000001": True}
    query.run_epoch(EPOCHS[0])
    assert (query.manifest.plan, query.manifest.applied_requests) == (OTHER_PLAN, 1)


@pytest.mark.parametrize("kind", ["", "partitions-"])
def test_one_flipped_bit_in_a_request_is_found(kind):
    store = MemoryStore()
    query = InlineJoin(QUERY, PLAN, settings=SETTINGS, store=store)
    query.migrate(OTHER_PLAN, "moving_state")
    query.rescale(8)
    name = f"{REQUESTS}/{kind}000001"
    data = store.read(name).to_pybytes()
    for bit in range(8 * len(data)):
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        store.put(name, bytes(flipped))
        with pytest.raises(CheckpointError, match=f"in {name} must be .*delete {name} to go on"):
            RequestQueue(store, QUERY, SETTINGS).load(query.manifest, None)


def test_a_request_whose_answer_is_lost_lasts():
    # Its file may be that of a driver that failed before the disk had it.
    store = FaultStore(random.Random(1))
    queue = RequestQueue(store, QUERY, SETTINGS)
    queue.plans.add(request(PLAN))
    name, data = "requests/000001", store.read("requests/000001")
    store.delete(name)
    store.sync(REQUESTS)
    store.put(name, data)
    RequestQueue(store, QUERY, SETTINGS).plans.add(request(PLAN))
    assert store.list(REQUESTS) == [name]
    assert store.is_durable(name)


def test_a_number_that_a_fenced_driver_has_taken_is_left_out():
    store = MemoryStore()
    queue, fenced = RequestQueue(store, QUERY, SETTINGS), RequestQueue(store, QUERY, SETTINGS)
    fenced.plans.add(request(PLAN))
    queue.plans.add(request(OTHER_PLAN))
    assert plans(store) == {"requests/000001": False, "requests/000002": True}


def test_a_request_that_a_successor_applies_before_its_driver_knows_is_not_made_again():
    def take_over() -> None:
        other = InlineJoin(QUERY, PLAN, settings=SETTINGS, store=store)
        other.run_epoch(EPOCHS[0])
        assert other.manifest.plan == OTHER_PLAN
        other.migrate(PLAN, "moving_state")
        other.run_epoch(EPOCHS[1])

    store = _Interrupted()
    query = InlineJoin(QUERY, PLAN, settings=SETTINGS, store=store)
    store.after.append(take_over)
    with pytest.raises(FencedError):
        query.migrate(OTHER_PLAN, "moving_state")
    last = InlineJoin(QUERY, PLAN, settings=SETTINGS, store=store)
    last.run_epoch(EPOCHS[2])
    assert last.manifest.plan == PLAN


def test_a_driver_that_is_fenced_while_it_makes_a_request_does_not_confirm_it():
    def take_over() -> None:
        other = InlineJoin(QUERY, PLAN, settings=SETTINGS, store=store)
        # It has this number from now on, and applies it.
        other.migrate(PLAN, "moving_state")
        other.run_epoch(EPOCHS[0])

    store = _Interrupted()
    query = InlineJoin(QUERY, PLAN, settings=SETTINGS, store=store)
    store.before.append(take_over)
    with pytest.raises(FencedError):
        query.migrate(OTHER_PLAN, "moving_state")


def test_a_request_like_one_that_a_fenced_driver_has_made_and_applied_meanwhile_is_not_lost():
    store = MemoryStore()
    fenced = InlineJoin(QUERY, PLAN, settings=SETTINGS, store=store)
    query = InlineJoin(QUERY, PLAN, settings=SETTINGS, store=store)
    # The fenced driver wakes when both of its threads have looked at the lease.
    fenced._runner.requests.plans.add(request(OTHER_PLAN))
    intent = replace(fenced._runner.new_intent(0, None), first=query.manifest)
    write_or_read_intent(store, intent)
    query.run_epoch(EPOCHS[0])
    assert query.manifest.plan == OTHER_PLAN
    # The query may have left that plan again by itself.
    query.migrate(OTHER_PLAN, "moving_state")
    assert query._runner.requests.due(query.manifest) == (2, write_request(request(OTHER_PLAN)))


def test_a_plan_is_changing_from_its_request_until_the_migration_has_ended():
    store = MemoryStore()
    query = InlineJoin(QUERY, PLAN, settings=SETTINGS, store=store)

    def is_changing(join: InlineJoin) -> bool:
        return join._runner.requests.is_changing_plan(join.manifest)

    query.run_epoch(EPOCHS[0])
    assert not is_changing(query)
    query.migrate(OTHER_PLAN, "parallel_track")
    assert is_changing(query)
    # Another driver finds the epoch that was begun with it.
    write_or_read_intent(store, query._runner.new_intent(0, None))
    assert is_changing(InlineJoin(QUERY, PLAN, settings=SETTINGS, store=store))
    query = InlineJoin(QUERY, PLAN, settings=SETTINGS, store=store)
    query.run_epoch(EPOCHS[1])
    assert query.manifest.migration is not None
    assert is_changing(query)
