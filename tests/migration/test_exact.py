"""For any two plans, any strategy and any start, the results are those of a batch join."""

from __future__ import annotations

import random
from itertools import cycle, permutations, product

import pytest

from midstream.plan.tree import Plan
from midstream.protocol.settings import Settings
from midstream.testing import Shape
from midstream.testing.random_streams import SECOND
from midstream.values import Micros
from tests.migration.migration_cases import (
    CLIQUE,
    PLANS,
    SEVERAL_KEYS,
    STRATEGY_CASES,
    MigrationCase,
    StrategyCase,
    check_migration,
)

SHAPE = Shape(rows=3, keys=3, lateness=Micros(4 * SECOND), late=0.04, null_keys=0.04, duplicates=0.04)
ONE_KEY = MigrationCase(CLIQUE, SHAPE, 30, Settings(1, 4), 11)
FEW_ROWS = Shape(rows=4, keys=6, lateness=Micros(4 * SECOND))
SEVERAL_CLASSES = {
    name: MigrationCase(on, FEW_ROWS, 25, Settings(3, 8), 9) for name, on in SEVERAL_KEYS.items()
}

PAIRS = tuple(permutations(PLANS, 2))
# Early starts and fast paces, so that states are complete before the rows that they lack have expired.
STARTS_AND_PACES = tuple(product((1, 2, 3), (1, 2, None)))


def _sample_pairs(seed: int, count: int) -> list[tuple[Plan, Plan]]:
    return random.Random(seed).sample(PAIRS, count)


def test_there_are_650_pairs():
    assert len(set(PAIRS)) == 650


@pytest.mark.parametrize("part", range(5))
@pytest.mark.parametrize("how", STRATEGY_CASES, ids=str)
def test_a_migration_neither_loses_nor_repeats_a_result(how: StrategyCase, part: int):
    for (old, new), (start, background_epochs) in zip(
        _sample_pairs(part, 20), cycle(STARTS_AND_PACES), strict=False
    ):
        check_migration(ONE_KEY, part, old, new, how, start, background_epochs)


@pytest.mark.parametrize("keys", SEVERAL_CLASSES)
@pytest.mark.parametrize("how", STRATEGY_CASES, ids=str)
def test_a_migration_with_several_keys_neither_loses_nor_repeats_a_result(how: StrategyCase, keys: str):
    for (old, new), (start, background_epochs) in zip(
        _sample_pairs(sum(keys.encode()), 10), cycle(STARTS_AND_PACES), strict=False
    ):
        check_migration(SEVERAL_CLASSES[keys], 3, old, new, how, start, background_epochs)


@pytest.mark.exhaustive
@pytest.mark.parametrize("start", [1, 2, 4])
@pytest.mark.parametrize("how", STRATEGY_CASES, ids=str)
@pytest.mark.parametrize("old", PLANS, ids=str)
def test_no_pair_of_plans_loses_or_repeats_a_result(old: Plan, how: StrategyCase, start: int):
    for new in PLANS:
        if new != old:
            check_migration(ONE_KEY, start, old, new, how, start, background_epochs=start)


@pytest.mark.exhaustive
@pytest.mark.parametrize("keys", SEVERAL_CLASSES)
@pytest.mark.parametrize("how", STRATEGY_CASES, ids=str)
@pytest.mark.parametrize("old", PLANS, ids=str)
def test_no_pair_with_several_keys_loses_or_repeats_a_result(old: Plan, how: StrategyCase, keys: str):
    for new in PLANS:
        if new != old:
            check_migration(SEVERAL_CLASSES[keys], 3, old, new, how, start=2, background_epochs=2)
