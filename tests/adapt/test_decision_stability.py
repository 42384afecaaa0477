"""Adapting does no harm: the same decisions in every process, valid checkpoints, odd streams."""

import os
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pytest

from midstream.adapt.policy import MigrationPolicy
from midstream.inline import InlineJoin
from midstream.protocol.settings import Settings
from midstream.storage.fsck import check as fsck
from midstream.storage.memory_store import MemoryStore
from midstream.testing import assert_same_rows
from midstream.values import MICROS_PER_SECOND
from tests.adapt.adaptive_run import adaptive_run
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


def test_fsck_accepts_manifests_with_decisions():
    run = adaptive_run("a b", query=query_of("ab", clique("ab"), window=8))
    run.process(epochs_of(dict.fromkeys("ab", 4.0), dict.fromkeys("ab", uniform(50)), 8, 2.0))
    assert run.last.adaptation.last_decision is not None
    assert fsck(run.store).problems == ()


def test_a_query_goes_on_if_the_migration_that_it_decided_on_is_impossible(monkeypatch):
    query = query_of("abc", chain("abc"), window=20)
    epochs = epochs_of(dict.fromkeys("abc", 8.0), dict.fromkeys("abc", uniform(50)), 16, 2.0)
    kept = adaptive_run("(a b) c", Settings(2, 8), query).process(epochs)
    # As if a moved state had more rows than references can be given to.
    monkeypatch.setattr("midstream.engine.references.MAX_BATCHES", 0)
    moving = Settings(2, 8, adapt=True, policy=MigrationPolicy("moving_state"))
    adapting = adaptive_run("(a b) c", moving, query).process(epochs)
    decisions = [m.adaptation.last_decision for m in adapting.manifests if m.adaptation.last_decision]
    assert any(decision.verdict == "migrate" for decision in decisions)
    assert adapting.last.migrations == 0
    assert_same_rows(adapting.all_results, kept.all_results)


def test_one_row_far_in_the_future_does_not_distort_the_rates():
    query = query_of("abc", clique("abc"), window=8)
    epochs = epochs_of(dict.fromkeys("abc", 4.0), dict.fromkeys("abc", uniform(20)), 20, 2.0)
    row = epochs[3]["a"].to_pylist()[0]
    row["t"] = np.datetime64(10**9 * MICROS_PER_SECOND, "us").item().replace(tzinfo=row["t"].tzinfo)
    epochs[3]["a"] = pa.concat_tables([epochs[3]["a"], pa.Table.from_pylist([row], schema=SCHEMA)])
    run = adaptive_run("a b c", query=query).process(epochs)
    statistics = run.last.statistics
    assert statistics.streams["b"].rows / statistics.seconds == pytest.approx(4.0, rel=0.4)


def test_auto_takes_a_strategy_that_ends_without_a_window():
    query = query_of("abc", clique("abc"), window=None)
    policy = MigrationPolicy(background=False)
    join = InlineJoin(query, "(a b) c", settings=Settings(1, 1, policy=policy), store=MemoryStore())
    join.migrate("a (b c)", "auto", background="off")
    epochs = epochs_of(dict.fromkeys("abc", 2.0), dict.fromkeys("abc", uniform(9)), 3, 2.0)
    join.run_epoch(epochs[0])
    assert join.manifest.migration is None
    assert join.manifest.plan == "a (b c)"
