"""State moves to partitions that have less: when, how much, which groups first; results are as without."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from msgspec.structs import replace as replace_struct

from midstream.engine.hashing import hash_values
from midstream.engine.places import Places
from midstream.errors import OptionError
from midstream.inline import InlineJoin
from midstream.memory.balance import BalanceDecision, BalanceSettings, ForcedSpill, decide_balance
from midstream.memory.decision import FORCED
from midstream.memory.next_step import memory_context
from midstream.memory.settings import MemorySettings
from midstream.memory.sizes import FragmentSizes, GroupSizes
from midstream.protocol.rescaling import places_of
from midstream.protocol.settings import Settings
from midstream.runtime.crash_points import POINTS
from midstream.state.balance import Balance
from midstream.state.memory import GroupStatistics
from midstream.state.routing_table import RoutingTable
from midstream.storage.memory_store import MemoryStore
from midstream.testing import assert_same_rows
from midstream.testing.faults import SimulatedCrash
from midstream.values import Micros
from tests.helpers import die_at, rows, small_query

QUERY = small_query(["a.k = b.k"], default_window=100)
GROUPS = 8
LAZY = BalanceSettings(mode="lazy_disk", pause=Micros(20))
ACTIVE = replace(LAZY, mode="active_disk")
BUDGET = MemorySettings(1_000)


def epoch(number: int, count: int = 40) -> dict[str, pa.Table]:
    return {name: rows(*((10 * number, key, number, name) for key in range(count))) for name in "ab"}


def run_with(settings: Settings, epochs: int = 8) -> tuple[InlineJoin, list[pa.Table], list[dict[str, Any]]]:
    join = InlineJoin(QUERY, settings=settings)
    tables, events = [], []
    for number in range(epochs):
        tables.append(join.run_epoch(epoch(number)))
        assert join.lastProgress is not None
        events += [e for e in join.lastProgress["events"] if e["type"] == "state-relocated"]
    return join, tables, events


def test_state_moves_until_partitions_have_about_the_same():
    uneven = Settings(3, 32, shares=(6, 1, 1))
    settings = replace(uneven, balance=LAZY)
    join, tables, events = run_with(settings)
    other, others, none = run_with(uneven)
    assert none == []
    assert_same_rows(pa.concat_tables(tables), pa.concat_tables(others))
    assert (events[0]["sender"], events[0]["ratio"] < 0.8) == (0, True)
    # 10 pass in each epoch, and no less than 20 between two relocations.
    batches = [event["batchId"] for event in events]
    assert all(second - first >= 2 for first, second in pairwise(batches))
    moved = join.manifest.routings[-1].moved["0"]
    assert sum(event["groups"] for event in events) >= len(moved) > 0
    assert 0 not in moved
    assert 2 * ratio(other) < ratio(join)


def ratio(join: InlineJoin) -> float:
    """The least active state of a partition, as a share of the most."""
    context = memory_context(QUERY, join.manifest, places_of(join.manifest))
    active = context.sizes(join.manifest.slices).active
    return min(active) / max(active)


def test_shares_must_be_of_all_partitions():
    for shares in ((1, 1, 1), (0, 1)):
        with pytest.raises(OptionError, match=r"initialShares must have .*Hint: write as many"):
            InlineJoin(QUERY, settings=Settings(2, 8, shares=shares))


def test_rescaling_divides_all_groups_evenly_again():
    join, _, events = run_with(Settings(3, 32, shares=(6, 1, 1), balance=LAZY))
    assert events
    join.rescale(4)
    join.run_epoch(epoch(8))
    assert join.manifest.routings[-1] == RoutingTable(8, 4)


@pytest.mark.parametrize("point", POINTS[: POINTS.index("after the commit") + 1])
def test_an_epoch_that_runs_again_moves_the_same(point):
    settings = Settings(3, 32, shares=(6, 1, 1), balance=LAZY)
    store, straight = MemoryStore(), InlineJoin(QUERY, settings=settings)
    join = InlineJoin(QUERY, settings=settings, store=store)
    for each in (straight, join):
        each.run_epoch(epoch(0))
    straight.run_epoch(epoch(1))
    with die_at(point), pytest.raises(SimulatedCrash):
        join.run_epoch(epoch(1))
    # With other settings since, which count from the next epoch on.
    join = InlineJoin(QUERY, settings=replace(settings, balance=BalanceSettings()), store=store)
    if join.manifest.epoch < 1:
        join.run_epoch(epoch(1))
    assert join.manifest.routings == straight.manifest.routings
    assert join.manifest.balance == straight.manifest.balance
    assert join.manifest.balance.relocations


def decided(
    settings: BalanceSettings,
    active: Sequence[float],
    results: Sequence[float],
    *,
    spilled: float = 0.0,
    before: Balance | None = None,
) -> BalanceDecision:
    """What is decided about a fragment whose groups have so many active bytes, and made so many results."""
    join = InlineJoin(QUERY, settings=Settings(2, GROUPS))
    places = Places(GROUPS, (RoutingTable(0, 2),))
    context = memory_context(QUERY, join.manifest, places)
    figures = np.array(results, "<f4").tobytes()
    statistics = {"0: a b": GroupStatistics(figures, figures, figures)}
    context = replace(context, memory=replace_struct(context.memory, statistics=statistics))
    sizes = np.array(active)
    of = FragmentSizes(0, sizes, np.zeros(len(active)), sizes + spilled, sizes, sizes)
    return decide_balance(
        context, GroupSizes({"0: a b": of}, np.zeros(2), places), settings, BUDGET, before or Balance()
    )


def test_half_of_the_difference_moves_the_most_productive_groups_first():
    decision = decided(LAZY, [30, 20, 20, 30, 5, 5, 5, 5], [0, 1, 2, 9, 0, 0, 0, 0])
    # 40 bytes: group 3 is more productive than 2, which is too large then, and so is 1.
    assert decision.moved == {"0": {3: 1}}
    (relocation,) = decision.relocations
    assert (relocation.groups, relocation.bytes, relocation.sender, relocation.receiver) == (1, 30, 0, 1)
    assert relocation.ratio == 0.2


def test_the_first_group_stays():
    assert decided(LAZY, [30, 0, 0, 0, 5, 5, 5, 5], [9] + 7 * [0]).moved == {}


def test_nothing_moves_while_the_receiver_has_as_much_as_the_threshold_says():
    sizes = [10.0, 10.0, 10.0, 2.0] + 4 * [6.4]
    assert decided(LAZY, sizes, 8 * [1]) == BalanceDecision()
    assert decided(replace(LAZY, threshold=0.81), sizes, 8 * [1]).moved == {"0": {3: 1}}


def test_the_least_productive_partition_spills_if_another_is_much_more_productive():
    active, results = 8 * [500.0], [9, 9, 9, 9, 4, 4, 4, 4]
    decision = decided(ACTIVE, active, results)
    assert decision == BalanceDecision(forced=ForcedSpill(1, 0.3 * 2000))
    assert decided(LAZY, active, results) == BalanceDecision()
    assert decided(replace(ACTIVE, productivity_ratio=2.5), active, results) == BalanceDecision()


def test_no_more_is_spilled_for_others_than_what_does_not_fit():
    active, results = 8 * [255.0], [9, 9, 9, 9, 4, 4, 4, 4]
    assert decided(ACTIVE, active, results).forced == ForcedSpill(1, 40)
    assert decided(ACTIVE, active, results, before=Balance(forced_bytes=40)).forced is None
    assert decided(ACTIVE, active, results, spilled=100).forced == ForcedSpill(1, 0.3 * 1020)
    limited = replace(ACTIVE, forced_spill=10)
    assert decided(limited, active, results).forced == ForcedSpill(1, 10)


def test_state_that_is_spilled_for_others_stays_so_until_it_is_due():
    # Keys of partition 0 have a match, those of partition 1 none.
    settings = Settings(
        2, GROUPS, balance=replace(ACTIVE, forced_spill=1 << 20), memory=MemorySettings(1 << 20)
    )
    join = InlineJoin(QUERY, settings=settings)
    tables, actions = [], []
    for number in range(14):
        arrivals = epoch(number)
        routing = places_of(join.manifest).routing((0,))
        keys = arrivals["b"].column("k").combine_chunks()
        here = routing.targets(hash_values(keys)) == 0
        tables.append(join.run_epoch({**arrivals, "b": arrivals["b"].filter(pa.array(here))}))
        assert join.lastProgress is not None
        actions += [
            (e["type"], e["reason"])
            for e in join.lastProgress["events"]
            if "state-" in e["type"] and "reason" in e
        ]
    assert ("state-spilled", FORCED) in actions
    assert not any(action == "state-brought-back" and "room" in reason for action, reason in actions)
