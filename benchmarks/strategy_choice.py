"""How often `auto` chooses the best strategy: a grid of migrations, each done by every strategy, counted.

The grid has all combinations of windows, rates, numbers of streams and kinds of plans; keys are random. A
case runs for two windows, and then migrates from that very state by each strategy. The choice of `auto` is
made from the statistics at that moment, before anything has been observed of the migration. All figures are
counted work and epochs, including what the new plan itself does in that time, and do not depend on the
machine.
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

from benchmarks.migration import SCHEMA, clique_of, last_two_first, names_of, right_deep
from benchmarks.workloads import SECOND
from midstream.adapt.cost import work_in_units
from midstream.adapt.estimate import Estimator
from midstream.adapt.migration_cost import MigrationCost
from midstream.adapt.policy import GOALS, Goal, MigrationPolicy, allowed_migrations, best_migration
from midstream.inline import InlineJoin
from midstream.plan.tree import Plan, join, leaf, left_deep
from midstream.protocol.settings import Settings
from midstream.query.query import Query
from midstream.storage.memory_store import MemoryStore

WINDOWS = (30, 60, 120)
RATES = (1.0, 3.0)
STREAMS = (3, 4, 5)
KINDS = ("right-deep", "last two first", "one node apart", "reordered below")
EPOCHS_IN_WINDOW = 12
WARM_UP = 2 * EPOCHS_IN_WINDOW
MEASURED = round(1.2 * EPOCHS_IN_WINDOW)
CLOSE_FACTOR = 1.2
"""A choice is close to the best if it costs at most this many times as much."""

STRATEGY_CASES: dict[str, tuple[str, bool, bool]] = {
    "moving_state": ("moving_state", False, False),
    "parallel_track": ("parallel_track", False, False),
    "hybrid, isolated plans": ("hybrid", False, True),
    "hybrid, background off": ("hybrid", False, False),
    "hybrid, background on": ("hybrid", True, False),
}
"""Strategies with whether they compute in the background and whether they isolate the plans."""


@dataclass(frozen=True, kw_only=True)
class GridCase:
    """One migration of the grid."""

    window: int
    """Seconds."""
    rate: float
    """Rows per second of each stream."""
    streams: int
    kind: str
    seed: int

    @property
    def names(self) -> tuple[str, ...]:
        """A, B, C ..."""
        return names_of(self.streams)

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
        # The second and the third stream swapped: both plans have all the states above them.
        return left_deep(names), left_deep((names[0], names[2], names[1], *names[3:]))

    def query(self) -> Query:
        """The clique."""
        return clique_of(self.names, self.window)

    @cached_property
    def epochs(self) -> list[dict[str, pa.Table]]:
        """The input before the migration and after."""
        random = np.random.default_rng(self.seed)
        # Rows of another stream's window that a row matches, given the domain of its keys.
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
class MeasuredMigration:
    """What a migration cost by one strategy, with the work of the new plan itself."""

    work: float
    """Units in all."""
    peak_work: float
    """Units in the epoch with the most work."""
    epochs: int
    """Epochs in which both plans ran."""


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """A case of the grid, done by every strategy; strategies have the names of ``STRATEGY_CASES``."""

    case: GridCase
    measured: dict[str, MeasuredMigration]
    estimated: dict[str, MigrationCost]
    chosen: dict[Goal, str]
    """The strategy that `auto` takes, by goal."""

    def is_eligible(self, strategy: str, goal: Goal) -> bool:
        """Whether a strategy may be chosen: not for the goal ``steady``, if results wait for its end."""
        return goal != "steady" or not self.estimated[strategy].defers_results

    def is_best(self, strategy: str, goal: Goal) -> bool:
        """Whether no other strategy serves the goal better."""
        return self._rank(strategy, goal) == min(self._rank(s, goal) for s in self._eligible(goal))

    def is_close(self, strategy: str, goal: Goal) -> bool:
        """Whether the strategy is as good as the best one, or nearly so."""
        own = self._rank(strategy, goal)[0]
        best = min(self._rank(s, goal)[0] for s in self._eligible(goal))
        # A difference of one epoch means nothing.
        return own <= CLOSE_FACTOR * best or (goal == "quick" and own <= best + 1)

    def _eligible(self, goal: Goal) -> Iterable[str]:
        return (strategy for strategy in self.measured if self.is_eligible(strategy, goal))

    def _rank(self, strategy: str, goal: Goal) -> tuple[float, float]:
        migration = self.measured[strategy]
        if goal == "quick":
            return migration.epochs, migration.work
        return (migration.work, 0.0) if goal == "cheap" else (migration.peak_work, 0.0)


def grid() -> list[GridCase]:
    """All cases; each has its own seed."""
    parameters = product(WINDOWS, RATES, STREAMS, KINDS)
    return [
        GridCase(window=window, rate=rate, streams=streams, kind=kind, seed=seed)
        for seed, (window, rate, streams, kind) in enumerate(parameters)
    ]


def measure(case: GridCase) -> Outcome:
    """Warm up once, let `auto` choose for each goal, and migrate by each strategy from there."""
    before, after = case.plans
    query, store, settings = case.query(), MemoryStore(), Settings(1, 1)
    running = InlineJoin(query, before, settings=settings, store=store)
    for epoch in case.epochs[:WARM_UP]:
        running.run_epoch(epoch)
    layout, statistics = running.coordinator.layout(running.manifest), running.manifest.statistics
    names = {traits: name for name, traits in STRATEGY_CASES.items()}

    def name_of(migration: MigrationCost) -> str:
        return names[migration.strategy, migration.background, migration.isolated]

    candidates = allowed_migrations(layout, after, Estimator(query, statistics), MigrationPolicy())
    chosen = {
        goal: name_of(best_migration(layout, after, statistics, query, MigrationPolicy(goal=goal)))
        for goal in GOALS
    }
    measured = {}
    for name, (strategy, background, isolated) in STRATEGY_CASES.items():
        # Opened on a copy of the store, the query continues where it stopped.
        forked = InlineJoin(query, settings=settings, store=MemoryStore(dict(store.files)))
        forked.migrate(after, strategy, background="auto" if background else "off", isolated=isolated)
        measured[name] = _measure_migration(forked, case.epochs[WARM_UP:])
    estimated = {name_of(migration): migration for migration in candidates}
    return Outcome(case=case, measured=measured, estimated=estimated, chosen=chosen)


def _measure_migration(query: InlineJoin, epochs: Iterable[dict[str, pa.Table]]) -> MeasuredMigration:
    work, epochs_with_both = [], 0
    for epoch in epochs:
        query.run_epoch(epoch, background_epochs=1)
        work.append(work_in_units(query.report.work))
        epochs_with_both += query.manifest.migration is not None
    return MeasuredMigration(sum(work), max(work), epochs_with_both)


def run(console: Console) -> dict[str, Any]:
    """The grid as a table: `auto` compared with always taking the same strategy."""
    outcomes = [measure(case) for case in grid()]
    shares: dict[str, dict[str, dict[str, float]]] = {}
    for goal in GOALS:
        of_goal = shares.setdefault(goal, {})
        of_goal["auto"] = _share(outcomes, goal, [o.chosen[goal] for o in outcomes])
        for strategy in STRATEGY_CASES:
            if all(outcome.is_eligible(strategy, goal) for outcome in outcomes):
                of_goal[strategy] = _share(outcomes, goal, [strategy] * len(outcomes))
    table = Table(title=f"Choice of strategy, {len(outcomes)} migrations: the best / within 20 % of it")
    for column in ("", *GOALS):
        table.add_column(column, justify="right" if column else "left")
    for name in ("auto", *STRATEGY_CASES):
        shown = (_show(shares[goal].get(name)) for goal in GOALS)
        table.add_row(name if name == "auto" else f"always {name}", *shown)
    console.print(table)
    return {"shares": shares, "cases": [asdict(outcome) for outcome in outcomes]}


def _share(outcomes: list[Outcome], goal: Goal, taken: list[str]) -> dict[str, float]:
    pairs = list(zip(outcomes, taken, strict=True))
    return {
        "best": sum(outcome.is_best(strategy, goal) for outcome, strategy in pairs) / len(pairs),
        "close": sum(outcome.is_close(strategy, goal) for outcome, strategy in pairs) / len(pairs),
    }


def _show(share: dict[str, float] | None) -> str:
    return "-" if share is None else f"{share['best']:.0%} / {share['close']:.0%}"


if __name__ == "__main__":
    run(Console())
