"""A process may die at any named point of every epoch of a replacement, and nothing is lost or doubled."""

import copy
import random
from contextlib import suppress
from functools import cache

import pyarrow as pa
import pytest

from midstream.errors import CheckpointError
from midstream.inline import InlineJoin
from midstream.migration.strategies import BLACK_BOX_STRATEGIES
from midstream.protocol.settings import Settings
from midstream.runtime.crash_points import POINTS
from midstream.state.manifest import Manifest
from midstream.storage.fsck import check as fsck
from midstream.storage.lease import seize_lease
from midstream.storage.manifest_log import (
    manifest_name,
    manifests_newest_first,
    newest_manifest,
    read_manifest,
)
from midstream.testing import Shape, accept, assert_same_rows, batch_join, generate
from midstream.testing.faults import FaultStore, SimulatedCrash
from midstream.testing.store_sink import StoreSink
from tests.runtime.crash_runs import NAMES, CrashRun, DeathInEveryEpoch, query_of

SHAPE = Shape(rows=5, late=0.1, keys=3)
EPOCHS = generate(dict.fromkeys(NAMES, SHAPE), epochs=11, seed=5)
SETTINGS = Settings(2, 8)
BEGINS = 4
STRATEGIES = sorted(BLACK_BOX_STRATEGIES)
# The times are in seconds after the beginning of each epoch, which is ten long.
TIMES = {
    name: dict(
        zip(
            (row for epoch in EPOCHS if name in epoch for row in epoch[name].column("id").to_pylist()),
            (t for epoch in EPOCHS if name in epoch for t in epoch[name].column("t").to_pylist()),
            strict=True,
        )
    )
    for name in NAMES
}


OLD = query_of(SHAPE, 12, "a.k = b.k", "b.k2 = c.k2", "c.k = d.k")
NEW = query_of(SHAPE, 15, "a.k = b.k", "b.k2 = c.k2", "c.k = d.k", "a.id <> d.id", "a.k = d.k")


@cache
def _store_before() -> FaultStore:
    store = FaultStore(random.Random(1))
    join = InlineJoin(OLD, "((a b) c) d", settings=SETTINGS, store=store, sink=StoreSink(store))
    for epoch in EPOCHS[:BEGINS]:
        join.run_epoch(epoch)
    return store


def _newest_valid(store: FaultStore) -> Manifest:
    for name in manifests_newest_first(store):
        with suppress(CheckpointError):
            return read_manifest(store, name).manifest
    raise AssertionError("there must be a manifest")


class ReplacementCrashRun(CrashRun):
    """A query that is started again with one definition or the other."""

    def __init__(self, strategy: str) -> None:
        super().__init__(copy.deepcopy(_store_before()))
        self.strategy = strategy
        self.lives = 0
        self.phases: dict[int, str] = {}
        """What the replacement did in each epoch."""
        self.until: int | None = None

    def open(self) -> InlineJoin:
        manifest = _newest_valid(self.store)
        has_ended = manifest.definition["within"]["a, b"] == "15 seconds"
        self.lives += 1
        given = NEW if has_ended or (self.asked and self.lives % 2) else OLD
        lease = seize_lease(self.store, "run")
        sink = StoreSink(self.store, "results", lease.number)
        return InlineJoin(given, settings=SETTINGS, store=self.store, sink=sink, lease=lease)

    def _live(self) -> None:
        query = self.open()
        while query.manifest.epoch + 1 < len(EPOCHS):
            if query.manifest.epoch + 1 == BEGINS and not self.asked:
                query.replace(NEW, "a (b (c d))", self.strategy)
                self.asked = True
            self.run_epoch(query)

    def run_epoch(self, query: InlineJoin) -> None:
        query.run_epoch(EPOCHS[query.manifest.epoch + 1], background_epochs=1)
        manifest = query.manifest
        if (step := manifest.replacement) is not None:
            self.phases[manifest.epoch] = "catches up" if step.live_since is None else "live"
            self.until = step.until
        if manifest.ended_replacement is not None:
            self.phases[manifest.epoch] = "ended"

    def published(self) -> pa.Table:
        return StoreSink(self.store).published(OLD.output_schema, len(EPOCHS))

    def check(self) -> None:
        findings = fsck(self.store)
        assert findings.problems == ()
        assert findings.epoch == len(EPOCHS) - 1
        assert_same_rows(self.published(), _want(self.strategy))
        manifest = newest_manifest(self.store)
        assert manifest is not None
        assert (manifest.plan, manifest.replacement, manifest.replacements) == ("a (b (c d))", None, 1)
        assert manifest.definition["within"]["a, b"] == "15 seconds"


@cache
def _undisturbed(strategy: str) -> ReplacementCrashRun:
    run = ReplacementCrashRun(strategy)
    assert run.go() == 0
    return run


@cache
def _want(strategy: str) -> pa.Table:
    """Results of the old definition until the hand-over, and of the new one after it."""
    until = _undisturbed(strategy).until
    assert until is not None
    tables = accept(OLD, EPOCHS).tables(OLD)
    old, new = (batch_join(query, tables) for query in (OLD, NEW))
    return pa.concat_tables([_between(old, -(2**62), until), _between(new, until, 2**62)])


def _between(results: pa.Table, after: int, until: int) -> pa.Table:
    moments = [TIMES[name] for name in NAMES]
    latest = [
        max(times[i] for times, i in zip(moments, row.values(), strict=True)) for row in results.to_pylist()
    ]
    micros = pa.array(latest).cast(pa.timestamp("us", "UTC")).cast(pa.int64()).to_pylist()
    return results.filter(pa.array([after < time <= until for time in micros]))


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_replacement_takes_as_long_as_these_tests_think(strategy):
    run = _undisturbed(strategy)
    run.check()
    phases = list(dict.fromkeys(run.phases.values()))
    assert phases == (["catches up"] if strategy == "generalized_hybrid" else []) + ["live", "ended"]
    assert min(run.phases) == BEGINS
    assert _want(strategy).num_rows > 30


@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize(
    ("strategy", "power"),
    [(strategy, "process") for strategy in STRATEGIES] + [("generalized_hybrid", "machine")],
)
def test_dying_at_each_point_in_every_epoch_of_a_replacement_changes_nothing(strategy, point, power):
    run = ReplacementCrashRun(strategy)
    death = DeathInEveryEpoch(run, point, power)
    assert run.go(death) == len(death.epochs)
    # Not every epoch deletes a slice.
    epochs = death.epochs
    assert epochs if point == "after deleting a slice" else epochs >= set(_undisturbed(strategy).phases)
    run.check()


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_an_epoch_that_runs_again_because_its_manifest_was_damaged_does_the_same(strategy):
    phases = _undisturbed(strategy).phases
    for epoch in phases:
        run = ReplacementCrashRun(strategy)
        done: list[int] = []

        def hook(point: str, run=run, done=done, epoch=epoch) -> None:
            manifest = newest_manifest(run.store.inner)
            if point == "after the commit" and manifest is not None and manifest.epoch == epoch and not done:
                done.append(epoch)
                name = manifest_name(manifest.lease, epoch)
                run.store.inner.put(name, run.store.inner.files[name].to_pybytes()[:-10])
                raise SimulatedCrash(point)

        assert run.go(hook) == 1
        run.check()


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_driver_that_another_one_has_taken_over_from_does_no_harm(strategy):
    for point in POINTS[STRATEGIES.index(strategy) :: len(STRATEGIES)]:
        run = ReplacementCrashRun(strategy)
        paused: set[int] = set()

        def hook(here: str, run=run, paused=paused, point=point) -> None:
            manifest = _newest_valid(run.store)
            epoch = manifest.epoch
            if here != point or not run.asked or epoch in paused or epoch + 1 >= len(EPOCHS):
                return
            paused.update((epoch, epoch + 1))
            # Meanwhile another driver runs an epoch, or two, and ends; then this one goes on.
            other = run.open()
            for _ in range(1 + epoch % 2):
                if other.manifest.epoch + 1 < len(EPOCHS):
                    run.run_epoch(other)

        run.go(hook)
        assert paused
        run.check()
