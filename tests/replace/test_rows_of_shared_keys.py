"""Stored rows of a key that several engine partitions share arrive once in another definition."""

from __future__ import annotations

from dataclasses import replace

import pytest

from midstream.memory.balance import BalanceSettings
from midstream.migration.strategies import BLACK_BOX_STRATEGIES
from midstream.plan.tree import parse_plan
from midstream.protocol.settings import Settings
from midstream.query.build import build_query
from midstream.query.query import Query
from midstream.testing import Shape, generate, stream
from midstream.testing.random_places import RandomPlaces, hashes_of, placed_by
from midstream.values import Micros
from tests.replace.replacement_run import ReplacementRun

SHAPE = Shape(rows=6, keys=3, hot=0.4)
BEGINS = 4


def query(seconds: int) -> Query:
    streams = [stream(name, SHAPE) for name in "abc"]
    items = [f"{name}.id" for name in "abc"]
    window = Micros(seconds * 1_000_000)
    return build_query(streams, ["a.k = b.k", "b.k = c.k"], default_window=window, select=items)


@pytest.mark.parametrize("strategy", sorted(BLACK_BOX_STRATEGIES))
def test_stored_rows_of_a_shared_key_arrive_once(strategy):
    shared = 0
    for seed in range(3):
        epochs = generate(dict.fromkeys("abc", SHAPE), epochs=10, seed=seed)
        settings = replace(Settings(3, 8), balance=BalanceSettings(mode="lazy_disk", pause=Micros(0)))
        hashes = hashes_of(query(15), parse_plan("a b c", "abc"), epochs)
        with placed_by(RandomPlaces(seed, change_rate=0.6, group_rate=0.5, hashes=hashes)):
            run = ReplacementRun(query(15), "a b c", settings)
            for number, epoch in enumerate(epochs):
                if number == BEGINS:
                    shared += bool(run.join.manifest.routings[-1].spread)
                    run.replace(query(20), strategy)
                run.process(epoch, background_epochs=1)
            run.check()
            assert run.has_ended
    assert shared > 0
