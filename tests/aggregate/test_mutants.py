"""Faults that are put into the code on purpose: the comparison with DuckDB finds each of them."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from unittest import mock

import pytest

from midstream.aggregate.emit import emitted_windows
from midstream.aggregate.next_step import output_watermark
from midstream.aggregate.partials import merge_partials
from midstream.errors import InternalError
from midstream.memory.settings import MemorySettings
from midstream.migration.strategies import STRATEGIES
from midstream.protocol.settings import Settings
from midstream.testing import generate
from midstream.testing.random_cuts import RandomCuts, decided_by
from midstream.testing.random_streams import SECOND
from tests.aggregate.aggregate_run import SHAPE, AggregateRun, aggregated_query

SEED = 1


def run_seed(seed: int) -> None:
    """Cuts at random and a migration; an error if a window is wrong."""
    query = aggregated_query()
    epochs = generate(dict.fromkeys("abc", SHAPE), epochs=18, seed=seed)
    with decided_by(RandomCuts(seed, 0.1, 0.3)):
        run = AggregateRun(query, "(a b) c", Settings(2, 8, memory=MemorySettings(1)))
        begins = random.Random(seed).randrange(2, 6)
        run.process(epochs[:begins])
        run.join.migrate("a (b c)", "parallel_track")
        run.process(epochs[begins:9])
        run.process(epochs[9:], drains=True)
        assert run.join.manifest.migrations == 1
        assert run.join.manifest.migration is None
        run.process([{}])
        run.check()
        run.finish()


_watermark, _merge, _emitted = output_watermark, merge_partials, emitted_windows


def _early(query, aggregation, manifest):
    until = _watermark(query, aggregation, manifest)
    return None if until is None else until + 10 * SECOND


def _lost(aggregation, tables):
    return _merge(aggregation, tables[:1])


def _twice(aggregation, panes, emitted, until):
    return _emitted(aggregation, panes, None if emitted is None else emitted - 5 * SECOND, until)


def _never_deferring():
    return {name: replace(strategy, defers_results=False) for name, strategy in STRATEGIES.items()}


MUTANTS: dict[str, tuple[Callable[[], AbstractContextManager[object]], type[Exception]]] = {
    "a window leaves early": (
        lambda: mock.patch("midstream.aggregate.next_step.output_watermark", _early),
        InternalError,
    ),
    "a window leaves twice": (
        lambda: mock.patch("midstream.aggregate.run_fragment.emitted_windows", _twice),
        AssertionError,
    ),
    "partial aggregates are lost when slices merge": (
        lambda: mock.patch("midstream.aggregate.run_fragment.merge_partials", _lost),
        AssertionError,
    ),
    "what is owed is not waited for": (
        lambda: mock.patch("midstream.aggregate.next_step.owed_since", return_value={}),
        InternalError,
    ),
    "deferred results are not waited for": (
        lambda: mock.patch("midstream.aggregate.next_step.STRATEGIES", _never_deferring()),
        InternalError,
    ),
    "slices go before their windows": (
        lambda: mock.patch("midstream.protocol.coordinator.is_out", return_value=True),
        AssertionError,
    ),
}


def test_without_a_fault_nothing_is_found():
    run_seed(SEED)


@pytest.mark.parametrize("name", MUTANTS)
def test_a_fault_of_aggregates_gives_wrong_windows(name):
    fault, error = MUTANTS[name]
    with fault(), pytest.raises(error):
        run_seed(SEED)
