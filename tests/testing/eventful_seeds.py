"""Runs of the simulator with more of the events that a test is about, and the promises that they break."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from functools import cache
from itertools import chain

import pytest

from midstream.testing import replacements
from midstream.testing import simulate as simulator
from midstream.testing.broken_promise import BrokenPromiseError
from midstream.testing.rescales import Rescales
from midstream.testing.simulate import simulate
from midstream.testing.workload import Workload, draw_workload

BUDGET = 24
SEEDS = range(400)


def broken_promises(seeds: Iterable[int], *, enough: int = 1, likely: Iterable[int] = ()) -> set[str]:
    """The promises that the first few seeds that fail say were broken.

    Those that are ``likely`` to fail, because they once did, are tried first: it is quicker while that is so.
    """
    found = []
    for seed in dict.fromkeys(chain(likely, seeds)):
        try:
            simulate(seed)
        except BrokenPromiseError as error:
            found.append(error.promise)
        if len(found) == enough:
            break
    return set(found)


@cache
def workload_of(seed: int) -> Workload:
    """The workload that a seed draws."""
    return draw_workload(random.Random(seed), seed)


def without_rescales_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no thread ask for other partitions while an epoch runs."""
    monkeypatch.setattr(Rescales, "is_asked_for_meanwhile", lambda self: False)


def make_eventful(monkeypatch: pytest.MonkeyPatch, **rates: float) -> None:
    """Give every simulation many faults, at these rates; other rates stay as drawn."""
    real = simulator._Simulation.__init__
    # Nor is a definition replaced: likely seeds were found without.
    monkeypatch.setattr(replacements, "RATE", 0.0)

    def init(self: simulator._Simulation, seed: int) -> None:
        real(self, seed)
        self.max_lives += 5 * (BUDGET - self.store.budget)
        self.store.budget = BUDGET
        # Seeds that are likely to fail were found with the same partitions throughout.
        self.rescales.rate = self.rescales.rate_meanwhile = 0.0
        for name, rate in rates.items():
            setattr(self, name, rate)

    monkeypatch.setattr(simulator._Simulation, "__init__", init)


def small_and_long() -> Iterator[int]:
    """Seeds that are quick to run and whose queries have a long life."""
    for seed in SEEDS:
        work = workload_of(seed)
        if len(work.query.names) < 4 and len(work.epochs) > 4:
            yield seed


def pause_and_die_at(monkeypatch: pytest.MonkeyPatch, point: str) -> None:
    """At this point, and nowhere else, a driver may be paused, and the one that takes over may die."""
    real = simulator._Simulation._on_crash_point

    def crash_point(self: simulator._Simulation, here: str) -> None:
        rate = 0.3 if here == point else 0.0
        self.pause_rate, self.crash_rate = (0.0, rate) if self.paused else (rate, 0.0)
        real(self, here)
        self.pause_rate = 0.0

    monkeypatch.setattr(simulator._Simulation, "_on_crash_point", crash_point)


def die_in_every_epoch(monkeypatch: pytest.MonkeyPatch, point: str) -> None:
    """The first driver that comes to this point in an epoch dies there, and none dies anywhere else."""
    real = simulator._Simulation._on_crash_point
    died: set[tuple[int, int]] = set()

    def crash_point(self: simulator._Simulation, here: str) -> None:
        epoch = (self.outcome.seed, self.life.epoch)
        self.crash_rate = 1.0 if here == point and epoch not in died else 0.0
        died.update({epoch} if here == point else ())
        real(self, here)

    monkeypatch.setattr(simulator._Simulation, "_on_crash_point", crash_point)
