"""Which partitions read a slice, and which one merges it, follow from the routings."""

from __future__ import annotations

import pickle
import random
from collections.abc import Iterator

import numpy as np
import pytest

from midstream.engine.places import Places
from midstream.plan.state_id import StateId
from midstream.state.routing_table import RoutingTable, Spread
from midstream.state.slices import Slice, SliceKind, SliceOwner

GROUPS = 16
KEY = (0,)


def places(*tables: tuple[int, int]) -> Places:
    return Places(GROUPS, tuple(RoutingTable(since, partitions) for since, partitions in tables))


def slice_of(
    partition: int, placed: int, kind: SliceKind = "index", epochs: tuple[int, int] = (0, 0)
) -> Slice:
    owner = SliceOwner(kind, StateId("a"), KEY, partition)
    return Slice(owner, *epochs, 1, 1, (0,), placed=placed)


def test_without_a_change_each_partition_reads_and_merges_its_own():
    now = places((0, 3))
    for partition in range(3):
        assert now.sources(partition, KEY) == (partition,)
        for kind in ("index", "payload", "pending"):
            slice_ = slice_of(partition, 0, kind, (0, 7))
            assert now.readers(slice_) == (partition,)
            assert now.keeper(slice_) == partition


def test_a_slice_is_read_by_all_that_have_its_groups_now():
    up, down = places((0, 2), (5, 8)), places((0, 8), (5, 2))
    assert up.readers(slice_of(1, 0)) == (4, 5, 6, 7)
    assert [up.sources(p, KEY) for p in (0, 1, 4, 7)] == [(0,), (0, 1), (1, 4), (1, 7)]
    assert down.readers(slice_of(5, 0)) == (1,)
    assert down.sources(0, KEY) == (0, 1, 2, 3, 4, 6)
    # A partition that no longer has anything to do with its former rows.
    assert up.readers(slice_of(1, 5)) == (1,)


def test_a_slice_is_merged_by_its_partition_or_else_by_the_first_reader():
    up, down, across = places((0, 2), (5, 8)), places((0, 8), (5, 2)), places((0, 8), (5, 3))
    assert up.keeper(slice_of(0, 0)) == 0
    assert up.keeper(slice_of(1, 0)) == 4
    assert down.keeper(slice_of(5, 0, "payload")) == 1
    # Two partitions have its groups now: index rows are divided among them, payload cannot be.
    assert across.readers(slice_of(5, 0)) == (1, 2)
    assert across.keeper(slice_of(5, 0)) == 1
    assert across.keeper(slice_of(5, 0, "payload")) is None


def test_payload_is_read_by_all_whose_rows_any_of_its_epochs_may_have_brought():
    now = places((0, 2), (5, 8), (9, 4))
    # Merged in epoch 7, by the partition that has half of the groups in epoch 4 and two of them in epoch 7.
    merged = slice_of(0, 5, "payload", (3, 7))
    assert now.readers(merged) == (0, 1)
    assert now.readers(slice_of(0, 5, "payload", (5, 7))) == (0,)
    assert now.readers(slice_of(0, 5, "index", (3, 7))) == (0,)


def test_deferred_results_are_released_by_one_partition_that_there_is():
    now = places((0, 8), (5, 3))
    for partition in range(8):
        (reader,) = now.readers(slice_of(partition, 0, "deferred"))
        assert reader < 3
        assert partition in now.sources(reader, KEY)


def test_tables_that_no_slice_needs_are_forgotten():
    now = places((0, 2), (5, 8), (9, 4), (12, 3))
    assert now.after([]) == now.tables[3:]
    assert now.after([slice_of(0, 5)]) == (now.tables[1], now.tables[3])
    assert now.after([slice_of(0, 9, "payload", (2, 10))]) == now.tables
    assert now.after([slice_of(0, 9, "payload", (6, 10))]) == now.tables[1:]


def test_a_change_before_the_first_epoch_leaves_no_table_behind():
    assert places((0, 2)).rescaled(0, 8) == places((0, 8))


def test_what_tasks_get_of_places_does_not_grow_with_what_was_asked_of_them():
    now = places((0, 2), (5, 8))
    size = len(pickle.dumps(now))
    assert now.readers(slice_of(1, 0)) == (4, 5, 6, 7)
    assert now.sources(7, KEY) == (1, 7)
    assert len(pickle.dumps(now)) == size
    assert pickle.loads(pickle.dumps(now)) == now  # noqa: S301  # written right here


def histories(seed: int) -> Iterator[Places]:
    rng = random.Random(seed)
    now = places((0, rng.randint(1, GROUPS)))
    for epoch in range(1, 6):
        now = now.rescaled(epoch, rng.randint(1, GROUPS))
        yield now


@pytest.mark.parametrize("seed", range(20))
def test_every_group_of_a_slice_is_read_by_the_partition_that_has_it(seed):
    for now in histories(seed):
        for table in now.tables:
            for partition in range(table.partitions):
                for kind in ("index", "payload"):
                    slice_ = slice_of(partition, table.since, kind, (0, table.since))
                    has_now = np.array(now.routing(KEY).partitions)[now.held(slice_)]
                    assert set(has_now.tolist()) == set(now.readers(slice_))
                    assert all(partition in now.sources(reader, KEY) for reader in now.readers(slice_))
                    assert now.keeper(slice_) in (*now.readers(slice_), None)
                    assert not (now.held(slice_) & ~now.ever_held(partition, KEY)).any()


def test_groups_are_divided_in_proportion_to_shares():
    uneven = Places(GROUPS, (RoutingTable(0, 3, (2, 1, 1)),))
    assert uneven.routing(KEY).partitions == (*8 * (0,), *4 * (1,), *4 * (2,))
    assert uneven.rescaled(4, 2).routing(KEY).partitions == (*8 * (0,), *8 * (1,))


def test_a_relocated_group_is_read_from_the_slices_of_its_former_partition():
    now = places((0, 2)).relocated(5, {"0": {3: 1}})
    assert now.readers(slice_of(0, 0)) == (0, 1)
    assert now.readers(slice_of(0, 5)) == (0,)
    assert now.readers(slice_of(0, 5, "payload", (2, 7))) == (0, 1)
    assert 3 in now.groups_of(1, KEY)
    # Of another key, no group has moved.
    assert now.routing((1,)) == places((0, 2)).routing((1,))
    back = now.relocated(9, {"0": {3: 0}})
    assert back.readers(slice_of(1, 5)) == (0, 1)
    assert 3 in back.groups_of(0, KEY)


HOT = (5 << 32) + 77


def sharing(seed: int) -> Iterator[Places]:
    """Any places of a hot key, one after the other."""
    rng = random.Random(seed)
    now = places((0, 4))
    for epoch in range(1, 7):
        shared = tuple(rng.sample(range(4), rng.randint(2, 4)))
        spread = {HOT: Spread(shared, rng.choice("ab"))} if rng.random() < 0.7 else {}
        now = now.relocated(epoch, {"0": {rng.randrange(1, GROUPS): rng.randrange(4)}})
        now = now.spread(epoch, {"0": spread})
        yield now


@pytest.mark.parametrize("seed", range(40))
@pytest.mark.parametrize("streams", ["a", "b", "a,b", "c"])
def test_of_a_hot_key_each_partition_reads_every_row_once_or_one_partition_alone(seed, streams):
    for now in sharing(seed):
        place = now.of_key(KEY).routing.spread
        here = place[0][1] if place else None
        for table in now.tables:
            then = now.of_key(KEY)._place(HOT, now.tables.index(table))
            is_dealt = then.deals(streams.split(","))
            for stored_in in [(p,) for p in then.partitions] if is_dealt else [then.partitions]:
                slices = [slice_with(streams, partition, table.since) for partition in stored_in]
                reads = [p for s in slices for p in range(4) if reads_hot(now, s, p)]
                owner = int(now.routing(KEY).targets(np.array([HOT], np.uint64))[0])
                if here is None:
                    assert reads == [owner]
                elif here.deals(streams.split(",")):
                    assert len(reads) == 1
                    assert reads[0] in here.partitions
                else:
                    assert sorted(reads) == sorted(here.partitions)


def slice_with(streams: str, partition: int, placed: int) -> Slice:
    count = len(streams.split(","))
    return Slice(
        SliceOwner("index", StateId(streams), KEY, partition), 0, 0, 1, 1, count * (0,), placed=placed
    )


def reads_hot(now: Places, slice_: Slice, partition: int) -> bool:
    """Whether a partition has the rows of the hot key in a slice; what scans and searches say must agree."""
    has_it = partition in now.of_key(KEY)._now(HOT).partitions
    first, last = now.of_key(KEY).ranges(
        partition, slice_.owner.partition, now._number[slice_.placed], slice_.owner.state.streams
    )
    scanned = bool(np.any((first <= HOT) & (last >= HOT)))
    assert scanned == (has_it and HOT not in now.hidden(slice_, partition).tolist())
    assert partition in now.readers(slice_) or not scanned
    return scanned
