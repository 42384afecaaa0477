"""States of any size are moved: a large one in portions, and at once in as many batches as it takes."""

from __future__ import annotations

from itertools import pairwise

import pyarrow as pa
import pytest

from midstream.engine import intake, references, send, step
from midstream.inline import InlineJoin
from midstream.migration.lifecycle import layout_of
from midstream.plan.state_id import StateId
from midstream.plan.tree import parse_plan
from midstream.protocol.events import StateCompleted
from midstream.protocol.settings import Settings
from midstream.testing import Shape, assert_same_rows
from midstream.testing.random_streams import SECOND
from midstream.values import Micros
from tests.helpers import rows, small_query
from tests.migration.migration_cases import (
    SEVERAL_KEYS,
    MigrationCase,
    StrategyCase,
    check_migration,
)
from tests.recorded_run import RecordedRun

SHAPE = Shape(rows=4, keys=6, lateness=Micros(4 * SECOND))
MOVING_STATE = StrategyCase("moving_state")
HYBRID = StrategyCase("hybrid")
SHARING = StrategyCase("hybrid", background=False, isolated=False)
IN_PORTIONS = Settings(2, 8, rows_moved_at_once=0)

STAR = small_query(
    ["a.k = b.k", "a.j = c.j", "a.v = d.v"],
    "abcd",
    default_window=100,
    select=[f"{name}.t AS {name}" for name in "abcd"],
)
OLD, NEW = "((a b) c) d", "(a b) c d"
"""The new plan has all its rows in one engine partition: c, d and {a,b} are moved there."""
START, EPOCHS = 12, 24


def arrivals(epoch: int) -> dict[str, pa.Table]:
    """A row of each stream, ten microseconds after that of the previous epoch; half of the keys are equal."""
    return {name: rows((10 * epoch, epoch % 2, 1, "v")) for name in "abcd"}


def run_with_migration(
    settings: Settings, how: StrategyCase | None, *, restarts: bool = False, pace: int = 3
) -> RecordedRun:
    """A run over 24 epochs, with a migration from epoch 12 on if a strategy is given."""
    run = RecordedRun(STAR, OLD, settings)
    for epoch in range(EPOCHS):
        if how is not None and epoch == START:
            how.migrate(run.join, NEW)
        run.process([arrivals(epoch)], background_epochs=pace)
        if restarts:
            run.restart()
    return run


@pytest.fixture(scope="module")
def unchanged() -> RecordedRun:
    return run_with_migration(IN_PORTIONS, None)


@pytest.mark.parametrize("keys", SEVERAL_KEYS)
@pytest.mark.parametrize("how", [HYBRID, SHARING], ids=str)
def test_a_migration_that_moves_states_in_portions_is_exact(how: StrategyCase, keys: str):
    case = MigrationCase(SEVERAL_KEYS[keys], SHAPE, 25, IN_PORTIONS, 9)
    plans = ("((a b) c) d", "((a d) b) c", "(b c) (a d)", "a b c d")
    pairs = [
        (parse_plan(old, "abcd"), parse_plan(new, "abcd")) for old in plans for new in plans if old != new
    ]
    for number, (old, new) in enumerate(pairs[:: 2 if how == HYBRID else 3]):
        check_migration(case, 3, old, new, how, start=1 + number % 3, background_epochs=1 + number % 2)


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("how", [HYBRID, SHARING], ids=str)
def test_an_epoch_moves_only_a_portion(unchanged: RecordedRun, how: StrategyCase, restarts):
    migrated = run_with_migration(IN_PORTIONS, how, restarts=restarts)
    assert_same_rows(migrated.all_results, unchanged.all_results)
    assert list(migrated.ends.values()) == [NEW]
    moved = dict.fromkeys(["c@1", "d@1", "a,b@1"], 0)
    for before, after in pairwise(migrated.manifests):
        for state in moved:
            pending = [
                sum(s.rows for s in m.slices if s.owner.state == state and s.owner.kind == "pending")
                for m in (before, after)
            ]
            gained = max(pending[1] - pending[0], 0)
            # Rows of three epochs, each with up to ten partners before and after it.
            assert gained <= 3 * (10 if state == "a,b@1" else 1)
            moved[state] += gained
    # The last portion of each state is never pending after its epoch.
    assert moved["c@1"] >= 6
    assert moved["d@1"] >= 3
    assert moved["a,b@1"] >= 3


def test_progress_and_explain_say_what_is_being_moved():
    migrated = run_with_migration(IN_PORTIONS, HYBRID)
    phases = [p.migration.phase for p in migrated.progress if p.migration is not None]
    assert {"moving {c}", "moving {d}", "moving {a,b}"} <= set(phases)
    assert phases[-1] == "ended"
    completed = [event.state for event in migrated.events if isinstance(event, StateCompleted)]
    assert completed == ["c", "d", "a,b"]


def test_small_states_are_moved_in_the_first_epoch():
    migrated = run_with_migration(Settings(2, 8), SHARING)
    moved = migrated.manifests[START].ended_migration
    assert moved is not None
    assert moved.moved == ("a,b@1", "c@1", "d@1")
    assert moved.moving == {}


def test_a_state_that_is_moved_in_portions_counts_as_incomplete():
    join = InlineJoin(STAR, OLD, settings=IN_PORTIONS)
    for epoch in range(START):
        join.run_epoch(arrivals(epoch))
    SHARING.migrate(join, NEW)
    join.run_epoch(arrivals(START), background_epochs=1)
    migration = join.manifest.migration
    assert migration is not None
    entries = {entry.state for table in migration.handover.values() for entry in table}
    assert entries == {StateId("a,b@1"), StateId("c@1"), StateId("d@1")}
    assert migration.moved == ()
    layout = layout_of(STAR, migration.new_plan, migration.state_ids)
    assert set(migration.moving) <= layout.states


@pytest.mark.parametrize("how", [MOVING_STATE, HYBRID, SHARING], ids=str)
@pytest.mark.parametrize("limit", ["MAX_POSITIONS", "MAX_COLUMN_BYTES"])
def test_a_state_beyond_what_a_segment_or_a_column_holds_is_moved_at_once(
    monkeypatch, unchanged: RecordedRun, how: StrategyCase, limit: str
):
    batches: list[int] = []
    real = intake.ingest_backfilled

    def ingest_backfilled(program, partition, key, target, table, batch):
        batches.append(batch)
        return real(program, partition, key, target, table, batch)

    monkeypatch.setattr(step, "ingest_backfilled", ingest_backfilled)
    monkeypatch.setattr(intake, limit, {"MAX_POSITIONS": 3, "MAX_COLUMN_BYTES": 300}[limit])
    # An epoch brings more than what a batch of rows that are moved may have now.
    monkeypatch.setattr(step, "concat_arrivals", lambda _, tables: pa.concat_tables(tables))
    monkeypatch.setattr(send, "_FIRST_PART_ROWS", 5)
    migrated = run_with_migration(Settings(2, 8), how)
    assert max(batches) >= 3
    assert_same_rows(migrated.all_results, unchanged.all_results)
    assert list(migrated.ends.values()) == [NEW]


def test_batches_hold_no_more_than_a_segment_and_a_column(monkeypatch):
    monkeypatch.setattr(intake, "MAX_POSITIONS", 10)
    tables = [pa.table({"x": list(range(start, start + 7))}) for start in range(0, 49, 7)]
    batches = list(intake.backfill_batches([*tables, pa.table({"x": list(range(49, 80))})]))
    assert max(batch.num_rows for batch in batches) <= 10
    assert pa.concat_tables(batches).column("x").to_pylist() == list(range(80))
    monkeypatch.setattr(intake, "MAX_POSITIONS", 1000)
    monkeypatch.setattr(intake, "MAX_COLUMN_BYTES", 100)
    texts = pa.table({"x": ["t" * 40] * 20})
    batches = list(intake.backfill_batches([texts, texts]))
    assert max(batch.nbytes for batch in batches) < 100
    assert sum(batch.num_rows for batch in batches) == 40
    assert list(intake.backfill_batches([])) == []


@pytest.mark.parametrize("partitions", [1, 3, 512])
def test_references_of_batches_differ_within_and_between_partitions(partitions):
    segments = {
        references.backfilled_segment_of(7, partition, partitions, batch)
        for partition in range(partitions)
        for batch in range(references.MAX_BATCHES // partitions)
    }
    assert len(segments) == references.MAX_BATCHES // partitions * partitions
    assert segments.isdisjoint(references.segment_of(7, p) for p in range(references.MAX_PARTITIONS))
    assert {references.epoch_of_segment(segment) for segment in segments} == {7}
