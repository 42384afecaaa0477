"""Faults of replacements that are put into the code on purpose: a seed of the simulator names each."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any
from unittest import mock

import pytest

from midstream.engine.epoch_filter import EpochSpan
from midstream.engine.places import Places
from midstream.engine.result_time_range import ResultTimeRange
from midstream.replace import lifecycle
from midstream.replace.handover_time import handover_time
from midstream.replace.lifecycle import BoxStep
from midstream.state.manifest import Manifest
from midstream.testing.replacements import RATE
from tests.testing.eventful_seeds import broken_promises

SEEDS = range(1200)


def replacing() -> Iterator[int]:
    """The seeds in which a definition may be replaced."""
    for seed in SEEDS:
        if random.Random(f"replacement {seed}").random() < RATE:
            yield seed


def _moved_by(micros: int) -> Callable[..., int | None]:
    def moved(*arguments: Any) -> int | None:
        until = handover_time(*arguments)
        return None if until is None else until + micros

    return moved


def _without_first(first: int, end: int) -> EpochSpan:
    return EpochSpan(min(first + 1, end), end)


def _all_of_it(self: BoxStep, result_range: ResultTimeRange | None) -> ResultTimeRange | None:
    return result_range


def _with_what_was_before(after: int | None) -> ResultTimeRange:
    return ResultTimeRange(after=None if after is None else after - 10_000_000)


MUTANTS: dict[str, tuple[int, set[str], Callable[[], AbstractContextManager[object]]]] = {
    "the hand-over is a microsecond early": (
        53,
        {"hand-over"},
        lambda: mock.patch.object(lifecycle, "handover_time", _moved_by(-1)),
    ),
    "the hand-over is a microsecond late": (
        53,
        {"hand-over"},
        lambda: mock.patch.object(lifecycle, "handover_time", _moved_by(1)),
    ),
    "results of the new definition leave before the hand-over": (
        82,
        {"prefix"},
        lambda: mock.patch("midstream.protocol.coordinator.results_after", _with_what_was_before),
    ),
    "results of the old definition leave after the hand-over": (
        82,
        {"prefix"},
        lambda: mock.patch.object(BoxStep, "old_result_range", _all_of_it),
    ),
    "what stored rows make leaves while the new definition catches up": (
        1017,
        {"prefix"},
        lambda: mock.patch.object(BoxStep, "new_result_range", _all_of_it),
    ),
    "stored rows of an epoch are left out": (
        9,
        {"prefix"},
        lambda: mock.patch.object(lifecycle, "EpochSpan", _without_first),
    ),
    "stored rows of a shared key arrive more than once": (
        2110,
        {"prefix"},
        lambda: mock.patch.object(Places, "gathered", property(lambda self: self)),
    ),
    "the old definition goes before its last result": (
        82,
        {"prefix"},
        lambda: mock.patch.object(lifecycle, "is_done", return_value=True),
    ),
    "slices of the new definition are deleted": (
        127,
        {"fsck", "errors"},
        lambda: mock.patch.object(Manifest, "all_slices", property(lambda self: self.slices)),
    ),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_a_fault_of_replacements_breaks_its_promise(name):
    seed, promises, fault = MUTANTS[name]
    with fault():
        broken = broken_promises(replacing(), likely=[seed])
    assert len(broken) == 1
    assert broken <= promises
