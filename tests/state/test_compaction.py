import math
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from midstream.plan.state_id import StateId
from midstream.state.compaction import FAN_IN, choose_merge, epochs_of, level
from midstream.state.slices import Slice, SliceOwner

OWNER = SliceOwner("index", StateId("a"), (0,), 0)


def make(first_epoch: int, epochs: int = 1) -> Slice:
    return Slice(OWNER, first_epoch, first_epoch + epochs - 1, epochs, 1, (0,))


def merged(chosen) -> Slice:
    return Slice(OWNER, chosen[0].first_epoch, chosen[-1].last_epoch, sum(s.epochs for s in chosen), 1, (0,))


def test_levels_count_powers_of_the_fan_in():
    assert [level(make(0, n)) for n in (1, 3, 4, 15, 16, 64)] == [0, 0, 1, 1, 2, 3]


def test_few_slices_are_left_alone():
    assert choose_merge([]) == ()
    assert choose_merge([make(0), make(1), make(2)]) == ()
    assert choose_merge([make(0, 4), make(4, 4), make(8), make(9)]) == ()


def test_four_neighbours_merge_at_once_with_the_level_above_if_they_complete_it():
    small = [make(n) for n in range(12, 16)]
    assert choose_merge([make(0, 16), *reversed(small)]) == tuple(small)
    levels = [make(0, 4), make(4, 4), make(8, 4)]
    assert choose_merge([*levels, *small]) == (*levels, *small)


def test_runs_that_are_too_large_stay_but_smaller_ones_above_them_merge():
    levels = [replace(make(4 * n, 4), bytes=40) for n in range(3)]
    small = [replace(make(n), bytes=10) for n in range(12, 16)]
    assert choose_merge([*levels, *small], max_bytes=160) == (*levels, *small)
    assert choose_merge([*levels, *small], max_bytes=159) == tuple(small)
    assert choose_merge([*levels, *small], max_bytes=39) == ()


@given(st.lists(st.booleans(), min_size=1, max_size=400))
def test_slices_stay_few_and_in_order_whichever_epochs_have_rows(has_rows):
    slices: list[Slice] = []
    written = 0
    for epoch, brings_rows in enumerate(has_rows):
        if not brings_rows:
            continue
        new_slice = make(epoch)
        chosen = choose_merge([*slices, new_slice])
        unmerged = [s for s in (*slices, new_slice) if s not in chosen]
        slices = [*unmerged, merged(chosen)] if chosen else unmerged
        written += sum(s.epochs for s in chosen) or 1
        assert [s.first_epoch for s in slices] == sorted(s.first_epoch for s in slices)
        assert all(a.last_epoch < b.first_epoch for a, b in pairwise(slices))
    count = sum(has_rows)
    assert sum(s.epochs for s in slices) == count
    levels = math.floor(math.log(max(count, 1), FAN_IN)) + 1
    assert len(slices) <= (FAN_IN - 1) * levels
    assert written <= count * (levels + 1)


SIZES = st.sampled_from([1, 5, 20, 26, 34, 51, 120])
"""Of epochs, in hundredths of what may be merged at once."""


@given(st.lists(st.tuples(st.integers(1, 60), st.lists(SIZES, min_size=1, max_size=2)), max_size=8))
def test_slices_stay_as_few_as_their_bytes_allow_however_large_epochs_are(phases):
    sizes = [size for epochs, pattern in phases for _ in range(epochs) for size in pattern]
    slices: list[Slice] = []
    written = 0
    for epoch, size in enumerate(sizes):
        new_slice = replace(make(epoch), bytes=size)
        chosen = choose_merge([*slices, new_slice], max_bytes=100)
        slices = [s for s in (*slices, new_slice) if s not in chosen]
        merged_bytes = sum(s.bytes for s in chosen)
        if chosen:
            slices.append(replace(merged(chosen), bytes=merged_bytes))
        assert merged_bytes <= 100
        assert all(a.last_epoch < b.first_epoch for a, b in pairwise(slices))
        levels = math.floor(math.log(epoch + 1, FAN_IN)) + 1
        assert len(slices) <= (FAN_IN - 1) * levels + FAN_IN * sum(sizes[: epoch + 1]) / 100
        written += sum(s.epochs for s in chosen) or 1
        assert written <= (epoch + 1) * (levels + 1)


def test_small_epochs_merge_after_large_ones_that_cannot():
    # Small ones were never merged any more, since the run with the large ones before them had too many bytes.
    slices = [replace(make(epoch), bytes=60) for epoch in range(6)]
    for epoch in range(6, 206):
        slices.append(replace(make(epoch), bytes=1))
        chosen = choose_merge(slices, max_bytes=100)
        slices = [s for s in slices if s not in chosen]
        if chosen:
            slices.append(replace(merged(chosen), bytes=sum(s.bytes for s in chosen)))
    assert len(slices) <= 6 + (FAN_IN - 1) * 4 + 2


def of_partition(partition: int, first: int, epochs: int = 1) -> Slice:
    slice_ = make(first, epochs)
    return replace(slice_, owner=replace(slice_.owner, partition=partition))


def test_slices_of_several_partitions_count_once():
    # Three epochs of 32 partitions whose groups are now in one, and its own first slice.
    taken_over = [of_partition(partition, first) for first in range(3) for partition in range(32)]
    assert choose_merge([*taken_over[:64], of_partition(0, 3)]) == ()
    chosen = choose_merge([*taken_over, of_partition(0, 3)])
    assert len(chosen) == 97
    assert epochs_of(chosen) == 4


def test_what_was_taken_over_is_merged_when_slices_of_so_many_epochs_are():
    large = [of_partition(partition, 0, 64) for partition in range(32)]
    slices, merged_at = list(large), 0
    for epoch in range(64, 400):
        chosen = choose_merge([*slices, of_partition(0, epoch)])
        slices = [s for s in [*slices, of_partition(0, epoch)] if s not in chosen]
        if chosen:
            first = min(s.first_epoch for s in chosen)
            slices.append(of_partition(0, first, epochs_of(chosen)))
        if set(large) & set(chosen):
            merged_at = merged_at or epoch
    # Not before three times as many epochs have passed again as the large ones have.
    assert merged_at == 255
    assert len(slices) < 12


def test_what_was_taken_over_does_not_keep_new_slices_from_merging():
    old = [replace(of_partition(p, epoch), bytes=12) for p in range(8) for epoch in range(3)]
    new = [replace(of_partition(0, epoch), bytes=10) for epoch in range(3, 7)]
    chosen = choose_merge([*old, *new], max_bytes=50)
    assert chosen == tuple(new)
    assert epochs_of(chosen) == FAN_IN
