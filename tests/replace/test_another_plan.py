"""Another plan for the same query by black boxes: what comes out is that of a query that is left alone."""

import random
from dataclasses import replace
from functools import cache

import pyarrow as pa
import pytest

from midstream.inline import InlineJoin
from midstream.memory.settings import MemorySettings
from midstream.migration.strategies import BLACK_BOX_STRATEGIES
from midstream.plan.tree import all_plans
from midstream.protocol.settings import Settings
from midstream.query.build import build_query
from midstream.storage.fsck import check as fsck
from midstream.storage.fsck import collect_garbage
from midstream.storage.lease import seize_lease
from midstream.storage.memory_store import MemoryStore
from midstream.testing import Shape, assert_same_rows, generate, stream
from midstream.testing.random_cuts import RandomCuts, decided_by
from midstream.testing.random_streams import SECOND
from midstream.values import Micros
from tests.helpers import small_query
from tests.migration.migration_cases import STRATEGY_CASES, StrategyCase

SHAPE = Shape(rows=6, late=0.1, null_keys=0.1, duplicates=0.05, keys=4)
NAMES = "abcd"
PREDICATES = {
    "one key": ("a.k = b.k", "b.k = c.k", "c.k = d.k", "a.v <> c.v"),
    "several keys": ("a.k = b.k", "b.k2 = c.k2", "c.k = d.k"),
}
PLANS = list(map(str, all_plans(NAMES)))
BEGINS = 9
"""By then slices have been merged, so that what is replayed in portions comes from slices of several."""


def _query(kind):
    return build_query(
        [stream(name, SHAPE) for name in NAMES],
        PREDICATES[kind],
        default_window=Micros(25 * SECOND),
        select=[f"{name}.id" for name in NAMES],
    )


def _epochs(seed):
    return generate(dict.fromkeys(NAMES, SHAPE), epochs=20, seed=seed)


@pytest.mark.parametrize("strategy", sorted(BLACK_BOX_STRATEGIES))
@pytest.mark.parametrize("kind", PREDICATES)
def test_results_come_in_the_epochs_in_which_they_would_have_come(kind, strategy):
    rng = random.Random(f"{kind} {strategy}")
    for seed in range(2):
        old, new = rng.sample(PLANS, 2)
        query, epochs = _query(kind), _epochs(seed)
        settings = Settings(rng.choice((1, 3)), 8)
        store = MemoryStore()
        join = InlineJoin(query, old, settings=settings, store=store)
        alone = InlineJoin(query, old, settings=settings)
        phases = []
        for number, epoch in enumerate(epochs):
            if number == BEGINS:
                join.migrate(new, strategy)
            got = join.run_epoch(epoch, background_epochs=rng.choice((1, 2)))
            assert_same_rows(got, alone.run_epoch(epoch))
            assert join.manifest.streams == alone.manifest.streams
            progress = join.recentProgress[-1]
            phases.append(progress["replacement"] and progress["replacement"]["phase"])
            assert progress["numOutputRows"] == got.num_rows
        expected = ["catching up"] if strategy == "generalized_hybrid" else []
        assert list(dict.fromkeys(phases)) == [None, *expected, "both plans", "ended"]
        manifest = join.manifest
        assert (manifest.plan, manifest.replacement, manifest.handed_over) == (new, None, None)
        assert manifest.results == alone.manifest.results
        assert not fsck(store).problems
        used = {s.name for s in manifest.slices} | {r.name for r in manifest.retired}
        assert {name.partition("/")[2] for name in store.list("slices")} == used
        assert collect_garbage(store, seize_lease(store, "gc"), delete=False) == []


@pytest.mark.parametrize("kind", PREDICATES)
def test_white_and_black_boxes_agree(kind):
    rng = random.Random(kind)
    query, epochs = _query(kind), _epochs(7)
    old, new = rng.sample(PLANS, 2)
    before = MemoryStore()
    join = InlineJoin(query, old, settings=Settings(2, 8), store=before)
    for epoch in epochs[:BEGINS]:
        join.run_epoch(epoch)
    results: dict[str, pa.Table] = {}
    hows: list[StrategyCase | str] = [*STRATEGY_CASES, *sorted(BLACK_BOX_STRATEGIES)]
    for how in hows:
        join = InlineJoin(query, settings=Settings(2, 8), store=MemoryStore(dict(before.files)))
        if isinstance(how, str):
            join.migrate(new, how)
        else:
            how.migrate(join, new)
        tables = [join.run_epoch(epoch, background_epochs=1) for epoch in epochs[BEGINS:]]
        assert join.manifest.plan == new, how
        results[str(how)] = pa.concat_tables(tables)
    first, *others = results
    for how in others:
        assert_same_rows(results[how], results[first], f"{how}, compared with {first}")


@cache
def _alone(seed: int) -> pa.Table:
    """The results of a query that is left alone."""
    join = InlineJoin(_query("several keys"), PLANS[seed], settings=Settings(2, 8))
    return pa.concat_tables([join.run_epoch(epoch) for epoch in _epochs(seed)])


@pytest.mark.parametrize("strategy", sorted(BLACK_BOX_STRATEGIES))
def test_spilled_groups_of_either_box_owe_no_result_in_the_end(strategy):
    for seed in range(2):
        query, epochs = _query("several keys"), _epochs(seed)
        settings = replace(Settings(2, 8), memory=MemorySettings(1))
        store = MemoryStore()
        with decided_by(RandomCuts(seed)):
            join = InlineJoin(query, PLANS[seed], settings=settings, store=store)
            tables = []
            for number, epoch in enumerate(epochs):
                if number == BEGINS:
                    join.migrate(PLANS[-1 - seed], strategy)
                tables.append(join.run_epoch(epoch, background_epochs=1))
            assert not fsck(store).problems
        tables.append(join.drain())
        assert_same_rows(pa.concat_tables(tables), _alone(seed))
        assert join.manifest.plan == PLANS[-1 - seed]


def test_a_running_replacement_lets_nothing_else_begin():
    query = small_query(["a.k = b.k"], "ab", default_window=10)
    join = InlineJoin(query, settings=Settings(2, 8))
    join.run_epoch({})
    join.migrate("b a", "generalized_parallel_track")
    with pytest.raises(Exception, match="a replacement that was asked for must have ended"):
        join.migrate("b a", "moving_state")
    with pytest.raises(Exception, match="a replacement that was asked for must have ended"):
        join.replace(query)
