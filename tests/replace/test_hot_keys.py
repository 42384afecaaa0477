"""Rows of hot keys that several partitions have are replayed once each, wherever rows are meanwhile."""

import random

import pytest

from midstream.inline import InlineJoin
from midstream.memory.balance import BalanceSettings
from midstream.migration.strategies import BLACK_BOX_STRATEGIES
from midstream.plan.tree import all_plans, parse_plan
from midstream.protocol.settings import Settings
from midstream.query.build import build_query
from midstream.testing import Shape, assert_same_rows, generate, stream
from midstream.testing.random_places import RandomPlaces, hashes_of, placed_by
from midstream.testing.random_streams import SECOND
from midstream.values import Micros

SHAPE = Shape(rows=6, keys=4)
QUERY = build_query(
    [stream(name, SHAPE) for name in "abc"],
    ["a.k = b.k", "b.k2 = c.k2"],
    default_window=Micros(25 * SECOND),
    select=["a.id", "b.id", "c.id"],
)
PLANS = list(map(str, all_plans("abc")))


@pytest.mark.parametrize("strategy", sorted(BLACK_BOX_STRATEGIES))
def test_copies_of_rows_are_no_more_rows(strategy):
    spread = 0
    for seed in (5, 8, 9):
        chance = random.Random(seed)
        old, new = chance.sample(PLANS, 2)
        epochs = generate(dict.fromkeys("abc", SHAPE), epochs=14, seed=seed)
        places = RandomPlaces(seed, 0.7, 0.5, hashes_of(QUERY, parse_plan(old, "abc"), epochs))
        alone = InlineJoin(QUERY, old, settings=Settings(1, 8))
        with placed_by(places):
            join = InlineJoin(QUERY, old, settings=Settings(3, 8, balance=BalanceSettings(mode="lazy_disk")))
            for number, epoch in enumerate(epochs):
                if number == 6:
                    spread += any(join.manifest.routings[-1].spread.values())
                    join.migrate(new, strategy)
                assert_same_rows(join.run_epoch(epoch, background_epochs=1), alone.run_epoch(epoch))
            assert join.manifest.plan == new
    assert spread == 3, "some key must be shared by several partitions by then"
