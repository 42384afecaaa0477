"""Many seeds of the simulator hold every promise, and a seed always does the same."""

import os
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import pytest

from midstream.testing.simulate import never_reached, simulate

SEEDS = int(os.environ.get("SIMULATOR_SEEDS", "500"))


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_every_seed_holds_every_promise():
    # New processes, not forks: the libraries below have threads.
    with ProcessPoolExecutor(os.cpu_count(), mp_context=get_context("spawn")) as pool:
        outcomes = list(pool.map(simulate, range(SEEDS), chunksize=10))
    assert never_reached(outcomes) == set()
    assert sum(outcome.crashes for outcome in outcomes) > SEEDS
    assert sum(outcome.errors for outcome in outcomes) > SEEDS / 2
    assert sum(outcome.rotten for outcome in outcomes) > SEEDS / 10


def test_a_seed_always_does_the_same():
    assert str(simulate(7)) == str(simulate(7))
