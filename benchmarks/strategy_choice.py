"""How often `auto` chooses the best way to migrate: a grid of migrations, each done in every manner, counted.

Windows, rates, numbers of streams and kinds of plans are crossed; keys are random. A cell runs for two
windows, and then migrates from that very state in each manner. What `auto` would have chosen, it chooses from
the statistics at that moment, before anything of the migration is known. All figures are counted work and
epochs, with what the new plan itself does in that time, and do not depend on the machine.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import product
from typing import Any

import numpy as np
import pyarrow as pa
from rich.console import Console
from rich.table import Table

from benchmarks.migration import SCHEMA, SECOND, last_two_first, right_deep
from midstream.adapt.cost import work_in_units
from midstream.adapt.estimate import Estimator
from midstream.adapt.migration_cost import MigrationCost
from midstream.adapt.policy import GOALS, Goal, MigrationPolicy, best_migration, candidate_migrations
from midstream.inline import InlineJoin
from midstream.plan.tree import Plan, join, leaf, left_deep
from midstream.protocol.settings import Settings
from midstream.query.build import build_query
from midstream.query.query import Query
from midstream.query.stream import ColumnRef, Stream
from midstream.storage.memory import MemoryStore
from midstream.values import Micros

WINDOWS = (30, 60, 120)
RATES = (1.0, 3.0)
STREAMS = (3, 4, 5)
KINDS = ("right-deep", "last two first", "one node apart", "reordered below")
EPOCHS_IN_WINDOW = 12
WARM_UP = 2 * EPOCHS_IN_WINDOW
MEASURED = round(1.2 * EPOCHS_IN_WINDOW)
CLOSE = 1.2
"""A choice is good if it costs at most this many times the best."""

STRATEGY_CASES: dict[str, tuple[str, bool, bool]] = {
    "moving_state": ("moving_state", False, False),
    "parallel_track": ("parallel_track", False, False),
    "hybrid, plans apart": ("hybrid", False, True),
    "hybrid, background off": ("hybrid", False, False),
    "hybrid, background on": ("hybrid", True, False),
}


@dataclass(frozen=True)
class Cell:
    """One migration of the grid."""

    window: int
    rate: float
    streams: int
    kind: str
    seed: int

    @property
    def names(self) -> tuple[str, ...]:
        """A, B, C ..."""
        return tuple("ABCDEFGH"[: self.streams])

    @property
    def plans(self) -> tuple[Plan, Plan]:
        """From which plan to which."""
        names = self.names
        if self.kind == "right-deep":
            return left_deep(names), right_deep(names)
        if self.kind == "last two first":
            return left_deep(names), last_two_first(names)
        if self.kind == "one node apart":
            return join(*map(leaf, names)), left_deep(names)
        # The second and the third in turn: all that is above them both plans have.
        return left_deep(names), left_deep((names[0], names[2], names[1], *names[3:]))

    def query(self) -> Query:
        """All streams by one key; results have one column, since nobody reads them."""
        streams = [Stream(n, SCHEMA, ColumnRef(n, ("ts",)), Micros(0)) for n in self.names]
        on = [f"{a}.k = {b}.k" for a, b in zip(self.names, self.names[1:], strict=False)]
        return build_query(streams, on, everywhere=Micros(self.window * SECOND), select=["A.id"])

    @cached_property
    def epochs(self) -> list[dict[str, pa.Table]]:
        """The input before the migration and after."""
        random = np.random.default_rng(self.seed)
        # So many rows of the window of another stream that a row joins with, by its own domain of keys.
        matches = random.uniform(1, 4, self.streams)
        domains = [max(2, round(self.rate * self.window / m)) for m in matches]
        step = self.window / EPOCHS_IN_WINDOW
        return [
            {
                name: self._rows(random, domain, epoch * step, step)
                for name, domain in zip(self.names, domains, strict=True)
            }
            for epoch in range(WARM_UP + MEASURED)
        ]

    def _rows(self, random: np.random.Generator, domain: int, begin: float, seconds: float) -> pa.Table:
        count = int(random.poisson(self.rate * seconds))
        times = np.sort(random.uniform(begin, begin + seconds, count) * SECOND).astype(np.int64)
        keys = random.integers(0, domain, count)
        return pa.table([np.arange(count), keys, times.view("datetime64[us]")], schema=SCHEMA)


@dataclass(frozen=True)
class Measured:
    """What a migration cost in one manner, with the work of the new plan itself."""

    work: float
    worst: float
    """In the epoch with the most work."""
    lasted: int
    """Epochs in which both plans ran."""


@dataclass(frozen=True)
class Outcome:
    """A cell, done in every manner."""

    cell: Cell
    measured: dict[str, Measured]
    priced: dict[str, MigrationCost]
    """What the models say, by manner."""
    chosen: dict[Goal, str]
    """The manner that `auto` takes, by goal."""

    def takes_part(self, policy: str, goal: Goal) -> bool:
        """Whether a manner may be chosen: not for steadiness, if results wait for its end."""
        return goal != "steady" or not self.priced[policy].delays

    def is_best(self, policy: str, goal: Goal) -> bool:
        """Whether no other manner serves the goal better."""
        return self._rank(policy, goal) == min(self._rank(m, goal) for m in self._rivals(goal))

    def is_close(self, policy: str, goal: Goal) -> bool:
        """Whether the manner is as good as the best one, or nearly so."""
        mine = self._rank(policy, goal)[0]
        best = min(self._rank(m, goal)[0] for m in self._rivals(goal))
        # An epoch more or less says nothing.
        return mine <= CLOSE * best or (goal == "quick" and mine <= best + 1)

    def _rivals(self, goal: Goal) -> Iterable[str]:
        return (policy for policy in self.measured if self.takes_part(policy, goal))

    def _rank(self, policy: str, goal: Goal) -> tuple[float, float]:
        done = self.measured[policy]
        if goal == "quick":
            return done.lasted, done.work
        return (done.work, 0.0) if goal == "cheap" else (done.worst, 0.0)


def grid() -> list[Cell]:
    """All cells; each has its own seed."""
    crossed = product(WINDOWS, RATES, STREAMS, KINDS)
    return [Cell(*parameters, seed=seed) for seed, parameters in enumerate(crossed)]


def measure(cell: Cell) -> Outcome:
    """Run a cell: warm up once, ask for the choices, and migrate in each manner from there."""
    before, after = cell.plans
    query, store, settings = cell.query(), MemoryStore(), Settings(1, 1)
    running = InlineJoin(query, before, settings=settings, store=store)
    for epoch in cell.epochs[:WARM_UP]:
        running.run_epoch(epoch)
    layout, statistics = running.coordinator.layout(running.manifest), running.manifest.statistics
    known = candidate_migrations(layout, after, Estimator(query, statistics), MigrationPolicy())
    by_manner = {(p.strategy, p.background, p.isolated): p for p in known}
    names = {policy: name for name, policy in STRATEGY_CASES.items()}
    chosen: dict[Goal, str] = {}
    for goal in GOALS:
        price = best_migration(layout, after, statistics, query, MigrationPolicy(goal=goal))
        chosen[goal] = names[price.strategy, price.background, price.isolated]
    measured = {}
    for name, (strategy, background, isolated) in STRATEGY_CASES.items():
        # Opened on a copy of the store, the query goes on where it stopped.
        forked = InlineJoin(query, settings=settings, store=MemoryStore(dict(store.files)))
        forked.migrate(after, strategy, background="auto" if background else "off", isolated=isolated)
        measured[name] = _follow(forked, cell.epochs[WARM_UP:])
    return Outcome(cell, measured, {name: by_manner[m] for name, m in STRATEGY_CASES.items()}, chosen)


def _follow(query: InlineJoin, epochs: Iterable[dict[str, pa.Table]]) -> Measured:
    work, lasted = [], 0
    for epoch in epochs:
        query.run_epoch(epoch, background_epochs=1)
        work.append(work_in_units(query.report.work))
        lasted += query.manifest.migration is not None
    return Measured(sum(work), max(work), lasted)


def run(console: Console) -> dict[str, Any]:
    """The whole grid as a table: of `auto`, and of always taking the same manner."""
    outcomes = [measure(cell) for cell in grid()]
    shares: dict[str, dict[str, dict[str, float]]] = {}
    for goal in GOALS:
        found = shares.setdefault(goal, {})
        found["auto"] = _share(outcomes, goal, [o.chosen[goal] for o in outcomes])
        for policy in STRATEGY_CASES:
            if all(o.takes_part(policy, goal) for o in outcomes):
                found[policy] = _share(outcomes, goal, [policy] * len(outcomes))
    table = Table(title=f"Choice of strategy, {len(outcomes)} migrations: the best / within 20 % of it")
    for column in ("", *GOALS):
        table.add_column(column, justify="right" if column else "left")
    for name in ("auto", *STRATEGY_CASES):
        shown = (_show(shares[goal].get(name)) for goal in GOALS)
        table.add_row(name if name == "auto" else f"always {name}", *shown)
    console.print(table)
    return {"shares": shares, "cells": [asdict(outcome) for outcome in outcomes]}


def _share(outcomes: list[Outcome], goal: Goal, taken: list[str]) -> dict[str, float]:
    pairs = list(zip(outcomes, taken, strict=True))
    return {
        "best": sum(o.is_best(policy, goal) for o, policy in pairs) / len(pairs),
        "close": sum(o.is_close(policy, goal) for o, policy in pairs) / len(pairs),
    }


def _show(share: dict[str, float] | None) -> str:
    return "-" if share is None else f"{share['best']:.0%} / {share['close']:.0%}"


if __name__ == "__main__":
    run(Console())
