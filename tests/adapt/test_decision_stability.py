"""Adapting never harms: the same decisions in every process, checkpoints that hold, odd streams."""

import os
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pytest

from midstream.adapt.policy import MigrationPolicy
from midstream.adapt.statistics import SECOND
from midstream.engine import intake
from midstream.inline import InlineJoin
from midstream.protocol.settings import Settings
from midstream.storage.fsck import check
from midstream.storage.memory import MemoryStore
from midstream.testing import assert_same_rows
from tests.adapt.adaptive_run import Run
from tests.adapt.synthetic_streams import SCHEMA, chain, clique, epochs_of, query_of, uniform

_PRINTS_DECISIONS = """
from midstream.state.manifest import manifest_json
from midstream.inline import InlineJoin
from midstream.protocol.settings import Settings
from tests.adapt.synthetic_streams import clique, epochs_of, query_of, uniform
names = "abcd"
join = InlineJoin(query_of(names, clique(names), window=8), settings=Settings(2, 8, adapt=True))
rates = {name: 2.0 + 0.7 * i for i, name in enumerate(names)}
for epoch in epochs_of(rates, dict.fromkeys(names, uniform(30)), 12, 2.0):
    join.run_epoch(epoch)
    print(manifest_json(join.manifest))
"""


def test_decisions_do_not_depend_on_the_hash_seed():
    printed = set()
    for seed in ("1", "2", "3"):
        env = {**os.environ, "PYTHONHASHSEED": seed}
        done = subprocess.run(
            [sys.executable, "-c", _PRINTS_DECISIONS], env=env, capture_output=True, text=True, check=True
        )
        printed.add(done.stdout)
    assert len(printed) == 1
    assert "verdict" in printed.pop()


def test_manifests_with_decisions_follow_each_other():
    run = Run("a b", query=query_of("ab", clique("ab"), window=8))
    run.go(epochs_of(dict.fromkeys("ab", 4.0), dict.fromkeys("ab", uniform(50)), 8, 2.0))
    assert run.last.adaptation.last_decision is not None
    assert check(run.store).problems == ()


def test_a_migration_of_its_own_that_is_impossible_is_let_be(monkeypatch):
    whole = intake.concat_arrivals

    def small(name, tables, *, moved=False):
        # As if a moved state had more than 2 GiB.
        with monkeypatch.context() as patch:
            patch.setattr(intake, "_MAX_COLUMN_BYTES", 100 if moved else 1 << 31)
            return whole(name, tables, moved=moved)

    query = query_of("abc", chain("abc"), window=20)
    epochs = epochs_of(dict.fromkeys("abc", 8.0), dict.fromkeys("abc", uniform(50)), 16, 2.0)
    kept = Run("(a b) c", Settings(2, 8), query).go(epochs)
    monkeypatch.setattr("midstream.engine.step.concat_arrivals", small)
    moving = Settings(2, 8, adapt=True, policy=MigrationPolicy("moving_state"))
    adapting = Run("(a b) c", moving, query).go(epochs)
    decided = [m.adaptation.last_decision for m in adapting.manifests if m.adaptation.last_decision]
    assert any(decision.verdict == "migrate" for decision in decided)
    assert adapting.last.migrations == 0
    assert_same_rows(pa.concat_tables(adapting.tables), pa.concat_tables(kept.tables))


def test_one_time_far_in_the_future_stops_no_clock():
    query = query_of("abc", clique("abc"), window=8)
    epochs = epochs_of(dict.fromkeys("abc", 4.0), dict.fromkeys("abc", uniform(20)), 20, 2.0)
    odd = epochs[3]["a"].to_pylist()[0]
    odd["t"] = np.datetime64(10**9 * SECOND, "us").item().replace(tzinfo=odd["t"].tzinfo)
    epochs[3]["a"] = pa.concat_tables([epochs[3]["a"], pa.Table.from_pylist([odd], schema=SCHEMA)])
    run = Run("a b c", query=query).go(epochs)
    known = run.last.statistics
    assert known.streams["b"].rows / known.seconds == pytest.approx(4.0, rel=0.4)


def test_without_a_window_auto_takes_a_strategy_that_ends():
    query = query_of("abc", clique("abc"), window=None)
    policy = MigrationPolicy(background=False)
    join = InlineJoin(query, "(a b) c", settings=Settings(1, 1, policy=policy), store=MemoryStore())
    join.migrate("a (b c)", "auto", background="off")
    epochs = epochs_of(dict.fromkeys("abc", 2.0), dict.fromkeys("abc", uniform(9)), 3, 2.0)
    join.run_epoch(epochs[0])
    assert join.manifest.migration is None
    assert join.manifest.plan == "a (b c)"
