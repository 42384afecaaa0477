"""Which partitions read a slice, and which one merges it, follow from the routings."""

from __future__ import annotations

import pickle
import random
from collections.abc import Iterator

import numpy as np
import pytest

from midstream.engine.places import Places
from midstream.plan.state_id import StateId
from midstream.state.routing_table import RoutingTable
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
    chance = random.Random(seed)
    now = places((0, chance.randint(1, GROUPS)))
    for epoch in range(1, 6):
        now = now.rescaled(epoch, chance.randint(1, GROUPS))
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
