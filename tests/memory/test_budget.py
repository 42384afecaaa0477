"""Any query, plan, migrations and partitions within any budget: at last the results are those of DuckDB."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from midstream.engine import step
from midstream.errors import CheckpointError
from midstream.inline import InlineJoin
from midstream.memory import decision, next_step
from midstream.memory.settings import MemorySettings
from midstream.memory.statistics import GroupOutput, read_statistics
from midstream.memory.strategies import SPILL_STRATEGIES
from midstream.protocol.settings import Settings
from midstream.query.query import Query
from midstream.runtime.watermark_reset import reset_watermark
from midstream.storage.fsck import check as fsck
from midstream.storage.lease import seize_lease
from midstream.storage.memory_store import MemoryStore
from midstream.storage.slice_files import SliceFiles
from midstream.testing import accept, assert_same_rows, batch_join
from midstream.testing.hypothesis_strategies import Case, cases
from midstream.values import Micros
from tests.helpers import rows, small_query
from tests.migration.migration_schedules import MigrationSchedule, migration_schedules

BUDGETS = st.builds(
    MemorySettings,
    st.sampled_from([2_000, 500, 8_000, 40_000, 1]),
    st.sampled_from(SPILL_STRATEGIES),
    st.sampled_from([0.3, 0.05, 1.0]),
    st.sampled_from([None, Micros(0), Micros(20_000_000)]),
)


@dataclass(frozen=True)
class Asked:
    """What users ask for before some of the epochs, besides migrations."""

    rescales: dict[int, int]
    drains: frozenset[int]


@st.composite
def things_asked(draw: st.DrawFn, case: Case) -> Asked:
    epochs = st.integers(0, len(case.epochs) - 1)
    counts = st.integers(1, min(case.settings.groups, 6))
    rescales = draw(st.dictionaries(epochs, counts, max_size=4))
    return Asked(rescales, draw(st.frozensets(epochs, max_size=2)))


def run_within(case: Case, schedule: MigrationSchedule, memory: MemorySettings, asked: Asked) -> InlineJoin:
    store, tables = MemoryStore(), []
    settings = replace(case.settings, memory=memory)
    join = InlineJoin(case.query, case.plan, settings=settings, store=store)
    for number, epoch in enumerate(case.epochs):
        if number in schedule.stops:
            join = InlineJoin(case.query, settings=replace(settings, partitions=None), store=store)
        if number in asked.rescales:
            join.rescale(asked.rescales[number])
        if number in asked.drains:
            tables.append(join.drain())
        if number in schedule.requests:
            request = schedule.requests[number]
            join.migrate(
                request.plan,
                request.strategy,
                background="auto" if request.background else "off",
                isolated=request.isolated,
            )
        tables.append(join.run_epoch(epoch, background_epochs=schedule.paces[number]))
    assert not fsck(store).problems
    tables.append(join.drain())
    assert not join.coordinator.owes(join.manifest)
    tables += [SliceFiles(store).open(s) for s in join.manifest.slices if s.owner.kind == "deferred"]
    accepted = accept(case.query, case.epochs, case.settings.idle_timeout).tables(case.query)
    assert_same_rows(pa.concat_tables(tables), batch_join(case.query, accepted))
    return join


@given(st.data(), BUDGETS)
def test_results_within_a_budget_are_those_without(data, memory):
    case = data.draw(cases(max_streams=5, max_epochs=7, max_results=1000))
    schedule = data.draw(migration_schedules(case, with_stops=True))
    run_within(case, schedule, memory, data.draw(things_asked(case)))


QUERY = small_query(["a.k = b.k", "b.k = c.k"], "abc", default_window=100, select=["a.v as a", "c.v as c"])
PAIRS_QUERY = small_query(["a.k = b.k", "b.k = c.k"], "abc", default_window=200, select=["a.v as a"])
TWO_KEYS = small_query(["a.k = b.k", "b.j = c.j"], "abc", default_window=100, select=["a.v as a"])


def _arrivals(epoch: int, count: int = 20) -> dict[str, pa.Table]:
    return {
        name: rows(*((10 * epoch, key % 7, key % 3, f"{name}{epoch} {key}") for key in range(count)))
        for name in "abc"
    }


def _last(join: InlineJoin) -> dict[str, Any]:
    assert join.lastProgress is not None
    return join.lastProgress


def _run(
    budget: int | None, epochs: int, query: Query = QUERY, store: MemoryStore | None = None
) -> InlineJoin:
    memory = None if budget is None else MemorySettings(budget)
    join = InlineJoin(query, "(a b) c", settings=Settings(2, 8, memory=memory), store=store)
    for _ in range(epochs):
        join.run_epoch(_arrivals(join.manifest.epoch + 1))
    return join


@pytest.mark.parametrize("partitions", [2, 64])
def test_a_decision_reads_the_statistics_once_however_many_partitions_there_are(monkeypatch, partitions):
    reads = []

    def read(*args: Any) -> GroupOutput:
        reads.append(args)
        return read_statistics(*args)

    settings = Settings(partitions, 64, memory=MemorySettings(1))
    join = InlineJoin(TWO_KEYS, "(a b) c", settings=settings)
    for epoch in range(3):
        join.run_epoch(_arrivals(epoch))
    monkeypatch.setattr(decision, "read_statistics", read)
    join.run_epoch(_arrivals(3))
    assert _last(join)["memory"]["owedGroups"] > 2
    # Two fragments, each read for its active groups and for its spilled ones.
    assert len(reads) == 4


def test_active_bytes_pass_the_budget_by_no_more_than_an_epoch_brings():
    whole = _run(1 << 40, 6)
    largest = _last(whole)["memory"]["busiestPartitionBytes"]
    budget = largest // 3
    join = _run(budget, 6)
    per_epoch = largest // 3  # the first epochs bring more for each row, because files have headers
    peaks = [progress["memory"]["busiestPartitionBytes"] for progress in join.recentProgress]
    assert max(peaks) <= budget + per_epoch
    assert max(peaks) < largest
    assert _last(join)["stateBytesSpilled"] > 0
    assert _last(join)["memory"]["owedGroups"] > 0
    assert _last(join)["memory"]["owedRows"] > 0
    assert _last(join)["stateBytesTouched"] < _last(whole)["stateBytesTouched"]


def test_groups_are_looked_at_once_a_partition_has_half_of_its_budget():
    whole = _run(None, 12)
    budget = _last(whole)["memory"]["busiestPartitionBytes"]
    join = _run(budget, 0)
    busiest, is_watched = [0], []
    for epoch in range(12):
        join.run_epoch(_arrivals(epoch))
        busiest.append(_last(join)["memory"]["busiestPartitionBytes"])
        is_watched.append(bool(join.manifest.memory.statistics))
    first = is_watched.index(True)
    # The epoch after the one that has passed the half is the first in which it is known.
    assert max(busiest[:first]) <= budget / 2 < busiest[first]
    assert 1 < first < 11
    assert all(is_watched[first:])
    # Slices from before it say how many rows of each group they have all the same.
    assert all(s.group_rows for s in join.manifest.slices if s.owner.has_index_rows)


def test_a_budget_that_is_never_reached_costs_nothing_but_counting_rows(monkeypatch):
    monkeypatch.setattr(next_step, "group_sizes", None)
    monkeypatch.setattr(step, "count_flows", None)
    monkeypatch.setattr(step, "count_results", None)
    join = _run(1 << 40, 6, TWO_KEYS)
    assert _last(join)["memory"]["busiestPartitionBytes"] > 0


PAIRS = {"a": 60, "b": 60, "c": 2}
"""Rows of an epoch by stream: pairs of the first two take several times the bytes of all inputs."""


def _pairs_arrive(epoch: int) -> dict[str, pa.Table]:
    """Rows with random keys, few of them for a while, so that there is room again."""
    chance, few = np.random.default_rng(epoch), 25 <= epoch < 45
    return {
        name: rows(*((10 * epoch, key, 1, "v") for key in chance.integers(0, 20, 3 if few else count)))
        for name, count in PAIRS.items()
    }


def _peaks(memory: MemorySettings) -> tuple[InlineJoin, list[int]]:
    """The bytes of the busiest partition in each epoch."""
    join = InlineJoin(PAIRS_QUERY, "(a b) c", settings=Settings(2, 32, memory=memory))
    peaks = []
    for epoch in range(60):
        join.run_epoch(_pairs_arrive(epoch))
        peaks.append(_last(join)["memory"]["busiestPartitionBytes"])
    return join, peaks


def test_groups_come_back_only_if_there_is_room_for_their_intermediate_states_as_well():
    _, unlimited = _peaks(MemorySettings(1 << 40, cleanup_delay=Micros(50)))
    most_in_an_epoch = max(after - before for before, after in pairwise(unlimited))
    budget = max(unlimited) // 3
    for share in (0.1, 0.3):
        join, limited = _peaks(MemorySettings(budget, spill_share=share, cleanup_delay=Micros(50)))
        actions = {event["type"] for p in join.recentProgress for event in p["events"]}
        assert {"state-spilled", "state-brought-back"} <= actions, f"spillShare {share}"
        assert max(limited) <= budget + most_in_an_epoch, f"spillShare {share}"


def test_a_slice_that_several_partitions_read_is_counted_once():
    """After a rescale they read the slices of the partitions that had their groups."""
    touched = {}
    for partitions in (2, 8):
        join = _run(1 << 40, 2)
        join.rescale(partitions)
        join.run_epoch(_arrivals(2))
        touched[partitions] = _last(join)["stateBytesTouched"]
    assert 0 < touched[8] <= touched[2]


def test_events_say_what_was_spilled_and_cleaned_up_and_why():
    join = _run(4_000, 30)
    events = [event for progress in join.recentProgress for event in progress["events"]]
    reasons = {(event["type"], event["reason"]) for event in events if "reason" in event}
    assert ("state-spilled", "more state was active than stateMemory") in reasons
    late = {kind for kind, reason in reasons if reason == "it was owed for longer than cleanupDelay"}
    assert late & {"state-cleaned-up", "state-brought-back"}
    spilled = next(event for event in events if event["type"] == "state-spilled")
    assert spilled["fragment"] == "0: a b c"
    assert spilled["groups"] > 0
    assert spilled["bytes"] > 0
    assert spilled["message"].startswith(f"spilled {spilled['groups']} groups of fragment '0: a b c'")


def test_without_a_budget_everything_comes_back():
    store = MemoryStore()
    assert _run(2_000, 5, store=store).manifest.memory.cuts
    join = _run(None, 1, store=store)
    assert not join.manifest.memory.cuts
    reasons = {e["reason"] for e in _last(join)["events"] if e["type"] == "state-brought-back"}
    assert reasons == {"there is no budget of memory any more"}
    assert _last(join)["memory"]["owedGroups"] == 0


def test_a_change_of_plan_that_changes_fragments_waits_and_says_so():
    join = _run(2_000, 4, TWO_KEYS)
    assert join.manifest.memory.cuts
    join.migrate("a (b c)", "moving_state")
    join.run_epoch(_arrivals(4))
    assert join.manifest.plan == "(a b) c"
    assert [e["plan"] for e in _last(join)["events"] if e["type"] == "migration-waits"] == ["a (b c)"]


def test_a_change_of_plan_inside_of_a_fragment_does_not_wait():
    join = _run(2_000, 4)
    assert join.manifest.memory.cuts
    join.migrate("a (b c)", "moving_state")
    join.run_epoch(_arrivals(4))
    assert join.manifest.plan == "a (b c)"
    assert join.manifest.memory.cuts


def test_windows_and_watermarks_stay_while_state_is_spilled():
    store = MemoryStore()
    assert _run(2_000, 5, store=store).manifest.memory.cuts
    wider = small_query(
        ["a.k = b.k", "b.k = c.k"], "abc", default_window=200, select=["a.v as a", "c.v as c"]
    )
    with pytest.raises(CheckpointError, match="windows must stay as they are while state is spilled"):
        _run(2_000, 1, wider, store)
    with pytest.raises(CheckpointError, match="state must not be spilled when a watermark is set back"):
        reset_watermark(store, seize_lease(store, "reset"), "a", 1)
