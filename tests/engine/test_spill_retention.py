"""Which rows stay while groups are spilled, compared with the definition, row by row."""

from __future__ import annotations

from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from midstream.engine.hashing import group_bounds, group_of
from midstream.engine.index_rows import sort_rows
from midstream.engine.memory_step import StateCuts
from midstream.engine.places import Places
from midstream.engine.references import epoch_of, new_references, segment_of
from midstream.engine.spill_retention import SpillRetention
from midstream.plan.state_id import StateId
from midstream.query.window import Windows
from midstream.state.expiry import Expiry
from midstream.state.memory import Mark
from midstream.state.routing_table import RoutingTable
from midstream.state.slices import Slice, SliceOwner
from midstream.values import Micros

GROUPS, EPOCHS, WINDOW = 8, 10, 5
A = StateId("a")
WINDOWS = Windows((("a", "b", Micros(WINDOW)),))
PLACES = Places(GROUPS, (RoutingTable(0, 2),))
cuts_of_group = st.sets(st.integers(0, EPOCHS - 1), min_size=1).map(lambda cuts: tuple(sorted(cuts)))
rows_drawn = st.lists(st.tuples(st.integers(0, GROUPS - 1), st.integers(0, EPOCHS - 1), st.integers(0, 60)))


def marks() -> dict[int, Mark]:
    return {epoch: Mark({"a": 5 * epoch, "b": 5 * epoch}) for epoch in range(EPOCHS)}


def slice_of(partition: int, latest: int = 0, last_epoch: int = EPOCHS) -> Slice:
    owner = SliceOwner("index", A, (0,), partition)
    return Slice(owner=owner, first_epoch=0, last_epoch=last_epoch, epochs=1, rows=1, latest=(latest,))


def index_rows(rows):
    hashes = np.array([int(group_bounds([group], GROUPS)[0][0]) for group, _, _ in rows], np.uint64)
    references = [new_references(segment_of(epoch, 0), 1)[0] for _, epoch, _ in rows]
    times = np.array([time for _, _, time in rows], np.int64)
    return sort_rows((0,), hashes, {A: np.array(references, np.int64)}, {"a": times})


@given(st.dictionaries(st.integers(0, GROUPS - 1), cuts_of_group), rows_drawn, st.integers(0, 60))
def test_rows_of_use_are_those_that_are_alive_or_may_owe_something(cuts, drawn, watermark):
    expiry = Expiry(WINDOWS, {"a": watermark, "b": watermark})
    states = {A: StateCuts(GROUPS, True, cuts, {})}
    retention = SpillRetention(expiry, states, marks(), PLACES)
    useful = retention.useful(rows := index_rows(drawn), slice_of(0))

    def is_useful(group: int, epoch: int, time: int) -> bool:
        first = cuts[group][0] if group in cuts else None
        owes = first is not None and (epoch >= first or time >= 5 * first - WINDOW)
        return time >= watermark - WINDOW or owes

    columns = (group_of(rows.hashes, GROUPS), epoch_of(rows.references[A]), rows.times["a"])
    wanted = [row for row in zip(*(c.tolist() for c in columns), strict=True) if is_useful(*row)]
    columns = (group_of(useful.hashes, GROUPS), epoch_of(useful.references[A]), useful.times["a"])
    assert list(zip(*(c.tolist() for c in columns), strict=True)) == wanted
    for partition in (0, 1):
        owned = np.flatnonzero(PLACES.ever_held(partition, (0,))).tolist()
        first = min((cuts[group][0] for group in owned if group in cuts), default=None)
        owner, latest = slice_of(partition).owner, watermark - WINDOW - 1
        assert retention.has_spilled(owner) == (first is not None)
        for last_epoch in range(EPOCHS):
            gone = first is None or (last_epoch < first and latest < 5 * first - WINDOW)
            assert retention.is_useless(owner, [latest], last_epoch) == gone


@pytest.mark.parametrize("partitions", [1, 8])
def test_what_is_asked_for_rows_does_not_grow_with_the_groups_that_are_spilled_elsewhere(partitions):
    """Each group was spilled in another epoch, and the rows are of one of them."""
    cuts = {group: (group,) for group in range(GROUPS)}
    places = Places(GROUPS, (RoutingTable(0, partitions),))
    expiry = Expiry(WINDOWS, {"a": 100, "b": 100})
    retention = SpillRetention(expiry, {A: StateCuts(GROUPS, True, cuts, {})}, marks(), places)
    asked = []
    is_live = Expiry.is_live

    def counting(expiry, times, last_epoch=None):
        asked.append(len(times["a"]))
        return is_live(expiry, times, last_epoch)

    with mock.patch.object(Expiry, "is_live", counting):
        assert len(retention.useful(index_rows([(3, 1, 10), (3, 5, 2), (3, 1, 9)]), slice_of(0))) == 2
    assert asked == [3, 3]
