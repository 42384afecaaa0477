"""Hot keys, by counts: the number of candidates follows the rows within the window, not those of the key."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from msgspec.structs import replace

from midstream.engine import hot_keys
from midstream.engine.work import WorkCounts
from midstream.inline import InlineJoin
from midstream.protocol.settings import Settings
from midstream.query.query import Query
from midstream.state.manifest import encode_manifest
from midstream.storage.fsck import check as fsck
from midstream.storage.manifest_log import manifest_name
from midstream.storage.memory_store import MemoryStore
from midstream.testing import accept, assert_same_rows, batch_join
from midstream.values import Micros
from tests.helpers import TIME, small_query

ROWS = 30_000
FAR = 10**9
"""A lateness with which no row is late."""


def arrivals(names: str, epoch: int = 0, count: int = ROWS, every: int = 10) -> dict[str, pa.Table]:
    """Rows with one key and each with another time, in no order, and each epoch between the others."""
    random = np.random.default_rng(epoch)
    times = np.arange(count) * every * 100 + epoch * every
    columns = {
        "k": np.zeros(count, np.int64),
        "j": np.ones(count, np.int64),
        "v": pa.nulls(count, pa.string()),
    }
    return {name: pa.table({"t": pa.array(random.permutation(times), TIME), **columns}) for name in names}


def run_counted(query: Query, plan: str | None, epochs: list[dict[str, pa.Table]]) -> tuple[int, WorkCounts]:
    join = InlineJoin(query, plan, settings=Settings(2, 8, max_event_time_ahead=None))
    results, work = 0, WorkCounts()
    for epoch in epochs:
        results += join.run_epoch(epoch).num_rows
        work += join.report.work
    return results, work


def test_a_hot_key_costs_what_it_finds():
    query = small_query(["a.k = b.k"], default_window=0)
    results, work = run_counted(query, None, [arrivals("ab")])
    assert results == work.candidates == ROWS


def test_a_hot_key_costs_what_it_finds_with_a_window_of_some_rows():
    query = small_query(["a.k = b.k"], default_window=3000)
    results, work = run_counted(query, None, [arrivals("ab")])
    assert 6 * ROWS < results == work.candidates


@pytest.mark.parametrize("plan", ["a b c", "(a b) c", "a (b c)"])
def test_a_hot_key_costs_what_it_finds_in_every_plan(plan):
    query = small_query(["a.k = b.k", "b.k = c.k"], "abc", default_window=0)
    results, work = run_counted(query, plan, [arrivals("abc")])
    assert results == ROWS
    # One node over all streams also makes pairs that meet their third row only through another stream.
    assert work.candidates == work.intermediate_rows <= 3 * ROWS


def test_a_cross_join_costs_what_it_finds():
    query = small_query([], default_window=0, cross=True)
    results, work = run_counted(query, None, [arrivals("ab")])
    assert results == work.candidates == ROWS


def test_hot_keys_cost_what_they_find_where_plans_search_by_several_keys():
    query = small_query(["a.k = b.k", "b.j = c.j"], "abc", default_window=0, select=["a.t"])
    results, work = run_counted(query, None, [arrivals("abc")])
    assert results == ROWS
    assert work.candidates == work.intermediate_rows == 2 * ROWS


@pytest.mark.parametrize("plan", ["a b c", "(a b) c"])
def test_a_hot_key_costs_what_it_finds_across_epochs_and_when_slices_have_merged(plan):
    query = small_query(["a.k = b.k", "b.k = c.k"], "abc", default_window=0, lateness=FAR)
    # Each stream is an epoch later than the one before it, so that new rows find stored ones.
    epochs = [
        {name: arrivals(name, number - i, 2000)[name] for i, name in enumerate("abc") if 0 <= number - i < 6}
        for number in range(8)
    ]
    results, work = run_counted(query, plan, epochs)
    assert results == 6 * 2000
    assert work.candidates == work.intermediate_rows <= 3 * results


@pytest.mark.parametrize("near", ["a", "b"])
@pytest.mark.parametrize("key", ["k", "j"], ids=["one stage", "two stages"])
def test_joined_rows_are_searched_by_the_time_that_rules_out_most(near, key):
    pairs = {("a", "b"): Micros(20_000), (near, "c"): Micros(0)}
    query = small_query(["a.k = b.k", f"b.{key} = c.{key}"], "abc", lateness=FAR, pairs=pairs)
    results, work = run_counted(query, "(a b) c", [arrivals("ab", count=2000), arrivals("c", count=2000)])
    assert 30 * 2000 < results < 41 * 2000
    # Each result is found once as a pair of a and b, and once by c; nothing else is looked at.
    assert work.candidates == 2 * results


def test_times_at_both_ends_of_the_calendar_are_far_apart():
    times = np.concatenate([np.arange(100) + (8 - 2**63), 2**63 - 1 - np.arange(100)])
    columns = {name: np.zeros(200, np.int64) for name in "kj"}
    table = pa.table({"t": pa.array(times, TIME), **columns, "v": pa.nulls(200, pa.string())})
    query = small_query(["a.k = b.k"], default_window=1, lateness=FAR)
    results, work = run_counted(query, None, [{"a": table, "b": table}])
    assert results == work.candidates == 2 * (100 + 99 + 99)


EPOCHS = [arrivals("ab", epoch, 500) for epoch in range(3)]
OLD = small_query(["a.k = b.k"], default_window=3000, lateness=FAR, select=["a.t", "b.t as other"])


@pytest.fixture
def by_arrival(monkeypatch):
    """A store with slices in which rows with one key are as they came, though they say otherwise."""
    store = MemoryStore()
    with monkeypatch.context() as patch:
        patch.setattr(hot_keys, "HOT_KEY_ROWS", FAR)
        join = InlineJoin(OLD, settings=Settings(2, 8), store=store)
        for epoch in EPOCHS[:2]:
            join.run_epoch(epoch)
    return store


def test_slices_of_earlier_versions_are_put_in_order_before_they_are_searched(by_arrival):
    manifest = InlineJoin(OLD, settings=Settings(2, 8), store=by_arrival).manifest
    assert {s.by_time for s in manifest.slices if s.owner.kind == "index"} == {True}
    old = replace(manifest, slices=tuple(replace(s, by_time=False) for s in manifest.slices))
    assert b"by_time" not in encode_manifest(old)
    by_arrival.put(manifest_name(old.lease, old.epoch), encode_manifest(old))
    assert fsck(by_arrival).problems == ()
    join = InlineJoin(OLD, settings=Settings(2, 8), store=by_arrival)
    found = join.run_epoch(EPOCHS[2])
    assert join.report.work.candidates == found.num_rows
    before, after = (batch_join(OLD, accept(OLD, EPOCHS[:n]).tables(OLD)) for n in (2, 3))
    assert_same_rows(pa.concat_tables([before, found]), after)


def test_slices_that_say_they_are_in_order_and_are_not_are_named(by_arrival):
    problems = fsck(by_arrival).problems
    manifest = InlineJoin(OLD, settings=Settings(2, 8), store=by_arrival).manifest
    index = {f"slices/{s.name}" for s in manifest.slices if s.owner.kind == "index"}
    assert {problem.file for problem in problems} == index
    assert {problem.what for problem in problems} == {
        "has many rows with one hash that are not in order of time"
    }
