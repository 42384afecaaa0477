"""Faults that are put into the code on purpose: random cuts find each of them."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any
from unittest import mock

import pyarrow as pa
import pytest

from midstream.engine.generations import GenerationFilter
from midstream.inline import InlineJoin
from midstream.memory.settings import MemorySettings
from midstream.testing import accept, assert_same_rows, batch_join
from midstream.testing.random_cuts import RandomCuts, decided_by
from midstream.testing.workload import draw_workload
from tests.memory.spill_faults import SPILL_FAULTS


def run_seed(seed: int) -> None:
    """A workload with random cuts; an error if its results are wrong in the end."""
    rng = random.Random(seed)
    workload = draw_workload(rng, seed)
    memory = MemorySettings(1)
    settings = replace(workload.settings, adapt=False, max_event_time_ahead=None, memory=memory)
    rates = rng.choice((0.05, 0.3)), rng.choice((0.1, 0.4))
    with decided_by(RandomCuts(seed, *rates)):
        join = InlineJoin(workload.query, workload.plan, settings=settings)
        tables = [join.run_epoch(epoch) for epoch in workload.epochs]
        tables += [join.run_epoch({}, drains=True) for _ in range(3)]
    accepted = accept(workload.query, workload.epochs, settings.idle_timeout).tables(workload.query)
    assert_same_rows(pa.concat_tables(tables), batch_join(workload.query, accepted))


def _no_later(**changed: Any) -> AbstractContextManager[object]:
    def pairs(*args: Any, **traits: Any) -> GenerationFilter:
        return GenerationFilter(*args, **traits | changed)

    return mock.patch("midstream.engine.cleanup.GenerationFilter", pairs)


_SEEDS_OF_SPILL_FAULTS = {
    "no holds": 504,
    "purged debts": 30,
    "intermediate rows are probed across a cut": 38,
    "intermediate states are added to instead of rebuilt": 112,
}
MUTANTS: dict[str, tuple[int, Callable[[], AbstractContextManager[object]]]] = {
    **{name: (seed, SPILL_FAULTS[name]) for name, seed in _SEEDS_OF_SPILL_FAULTS.items()},
    "combinations of one generation are made again": (8, lambda: _no_later(differs=False)),
    "what is owed is found from two of its rows": (8, lambda: _no_later(is_earlier=False)),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_a_fault_of_spilling_gives_wrong_results(name):
    seed, fault = MUTANTS[name]
    run_seed(seed)
    with fault(), pytest.raises(AssertionError, match="rows are wanted"):
        run_seed(seed)
