"""Migrations over unusual streams, which random tests seldom produce. Each is a regression test."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pyarrow as pa
import pytest

from midstream.errors import CheckpointError, MigrationError
from midstream.inline import InlineJoin
from midstream.plan.state_id import StateId, decode_state_id
from midstream.protocol.coordinator import Coordinator
from midstream.protocol.settings import Settings
from midstream.query.query import Query
from midstream.state.manifest import Manifest, manifest_json
from midstream.storage.fsck import check as fsck
from midstream.storage.memory_store import MemoryStore
from midstream.testing import assert_same_rows
from tests.helpers import rows, small_query

Arrivals = Callable[[int], dict[str, pa.Table]]


def run_plan(
    query: Query, plan: str, arrivals: Arrivals, epochs: int, *, change=None, paces=None
) -> list[pa.Table]:
    """The results of each epoch; ``change`` is the epoch, the plan and the strategy."""
    join = InlineJoin(query, plan, settings=Settings(2, 8))
    results = []
    for epoch in range(epochs):
        if change and epoch == change[0]:
            join.migrate(*change[1:])
        results.append(join.run_epoch(arrivals(epoch), background_epochs=(paces or {}).get(epoch)))
        assert fsck(join.store).problems == ()
    if change:
        assert join.manifest.plan == change[1]
    return results


def equal_rows(names: str) -> Arrivals:
    """In every epoch one row of each stream, with the same keys."""
    return lambda epoch: {name: rows((10 * epoch, 1, 1, "x")) for name in names}


def test_two_streams_that_share_two_keys_and_are_placed_by_a_third():
    on = ["a.k = b.k", "a.j = b.j", "a.k = c.k", "b.v = d.v"]
    query = small_query(on, "abcd", default_window=1000, select=[f"{n}.t AS {n}" for n in "abcd"])
    unchanged = run_plan(query, "((a b) c) d", equal_rows("abcd"), 8)
    for background_epochs in (None, 1):
        paces = dict.fromkeys(range(8), background_epochs)
        change = (3, "((a b) d) c", "hybrid")
        migrated = run_plan(query, "((a b) c) d", equal_rows("abcd"), 8, change=change, paces=paces)
        for actual, expected in zip(migrated, unchanged, strict=True):
            assert_same_rows(actual, expected)


@pytest.mark.parametrize("names", ["abcde", "bacde"])
def test_a_shared_state_whose_stream_is_moved(names):
    on = ["a.k = b.k", "b.j = c.j", "c.v = d.v", "d.k = e.k"]
    query = small_query(on, names, default_window=1000, select=[f"{n}.t AS {n}" for n in names])
    unchanged = run_plan(query, "((a b) c) (d e)", equal_rows(names), 9)
    migrated = run_plan(
        query, "((a b) c) (d e)", equal_rows(names), 9, change=(3, "((a (b c)) d) e", "hybrid")
    )
    for actual, expected in zip(migrated, unchanged, strict=True):
        assert_same_rows(actual, expected)


def test_an_entry_that_expires_while_its_state_is_being_rebuilt():
    on = ["a.k = b.k", "b.k = c.k", "c.k = d.k", "d.k = e.k"]
    query = small_query(on, "abcde", default_window=100, select=[f"{n}.v AS {n}" for n in "abcde"])

    def time(name: str, epoch: int) -> int | None:
        if name == "e":
            return {0: 50, 1: 50, 2: 60, 3: 60, 4: 60, 5: 120}.get(epoch, 130)
        if epoch < 2:
            return 50 if name in "ab" else 0
        return 60 if epoch < 6 else None

    def arrivals(epoch: int) -> dict[str, pa.Table]:
        times = {name: time(name, epoch) for name in "abcde"}
        return {n: rows((t, 1, 1, f"{n}{epoch}")) for n, t in times.items() if t is not None}

    unchanged = run_plan(query, "(((a c) b) e) d", arrivals, 9)
    change = (2, "((a b) (c d)) e", "hybrid")
    migrated = run_plan(query, "(((a c) b) e) d", arrivals, 9, change=change, paces={5: 1})
    for actual, expected in zip(migrated, unchanged, strict=True):
        assert_same_rows(actual, expected)


def test_results_wait_only_for_the_old_plans_results():
    """A lower sub-plan may last longer than that of the results; they must not wait for it."""
    on = ["a.k = b.k", "b.k = c.k", "c.k = d.k", "d.k = e.k"]
    query = small_query(on, "abcde", default_window=30, select=[f"{n}.v AS {n}" for n in "abcde"])

    def arrivals(epoch: int) -> dict[str, pa.Table]:
        def time(name: str) -> int:
            early_time = 100 if name == "a" else 50 + 10 * epoch
            return early_time if epoch < 2 else 100 + 5 * (epoch - 2)

        return {name: rows((time(name), 1, 1, f"{name}{epoch}")) for name in "abcde"}

    join = InlineJoin(query, "(((a b) c) d) e", settings=Settings(1, 1))
    epochs_of_lower_alone = 0
    results = []
    for epoch in range(12):
        if epoch == 2:
            join.migrate("((a (b c)) e) d", "parallel_track")
        results.append(join.run_epoch(arrivals(epoch)))
        tables = join.manifest.migration.handover if join.manifest.migration else {}
        deferred = [s for s in join.manifest.slices if s.owner.kind == "deferred"]
        assert not deferred or tables[StateId("a,b,c,d,e")]
        epochs_of_lower_alone += any(tables.values()) and not tables[StateId("a,b,c,d,e")]
    assert epochs_of_lower_alone
    unchanged = run_plan(query, "(((a b) c) d) e", arrivals, 12)
    assert_same_rows(pa.concat_tables(results), pa.concat_tables(unchanged))


def test_a_state_that_is_too_large_to_be_moved_stops_the_query_once(monkeypatch):
    query = small_query(["a.k = b.k", "b.j = c.j"], "abc", default_window=1000)
    store = MemoryStore()
    join = InlineJoin(query, "(a b) c", settings=Settings(1, 1), store=store)
    for epoch in range(4):
        join.run_epoch(equal_rows("abc")(epoch))
    join.migrate("a (b c)", "moving_state")
    monkeypatch.setattr("midstream.engine.references.MAX_BATCHES", 0)
    with pytest.raises(MigrationError, match=r"at most 0 batches to be moved at once; got batch 1\."):
        join.run_epoch({})
    monkeypatch.undo()
    restarted = InlineJoin(query, settings=Settings(1, 1), store=store)
    # The failed intent is not deleted, since another driver may follow it already: a second one replaces it.
    restarted.migrate("a b c", "moving_state")
    restarted.run_epoch(equal_rows("abc")(4))
    assert (restarted.manifest.plan, restarted.manifest.migrations) == ("(a b) c", 0)
    restarted.run_epoch(equal_rows("abc")(5))
    assert (restarted.manifest.plan, restarted.manifest.migrations) == ("a b c", 1)
    InlineJoin(query, settings=Settings(1, 1), store=store).run_epoch({})
    assert store.list("requests") == []
    assert len(store.list("intents")) == 1


@pytest.mark.parametrize(
    "change",
    [
        {"latest_times": {}},
        {"handover": {}},
        {"handover": {"a,b,c": ({"state": "b@1", "bounds": {"b": 3}},)}},
        {"handover": {"a,b,c": ({"state": "b,c@1", "bounds": {"b": 3}},)}},
        {"state_ids": {"b,c": "a,c@1"}},
        {"rebuilding": {"b,c@1": {"stream": "a", "from_epoch": 2}}},
        {"isolated": True, "background": True},
        {"moved": ("b,c@1",)},
        {"borders": ("b,c@1",)},
        {"borders": ("b",)},
    ],
    ids=str,
)
def test_a_manifest_with_an_impossible_migration_is_refused(change):
    query = small_query(["a.k = b.k", "b.k = c.k"], "abc", default_window=1000)
    join = InlineJoin(query, "(a b) c", settings=Settings(1, 1))
    for epoch in range(3):
        join.run_epoch(equal_rows("abc")(epoch))
    join.migrate("a (b c)", "hybrid", background="off", isolated=False)
    join.run_epoch(equal_rows("abc")(3))
    body = msgspec.json.decode(manifest_json(join.manifest))
    body["migration"] |= change
    manifest = msgspec.json.decode(msgspec.json.encode(body), type=Manifest, dec_hook=decode_state_id)
    Coordinator.resume(query, Settings(1, 1), join.manifest)
    with pytest.raises(CheckpointError, match="must have a migration that its plans allow"):
        Coordinator.resume(query, Settings(1, 1), manifest)
