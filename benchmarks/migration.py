"""What a migration costs, counted: the experiment of the paper on hybrid migration, in this process.

A clique of n streams with Poisson arrivals. At first the first stream has rare values, so that a left-deep
plan is best; when the migration begins it is the last one, and a right-deep plan is. Comparisons are those of
a nested loop, as in the paper; they do not depend on the machine.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa
from rich.console import Console
from rich.table import Table

from benchmarks.workloads import SECOND
from midstream.inline import InlineJoin
from midstream.migration import combined_layout, state_match
from midstream.plan.tree import Plan, join, leaf, left_deep
from midstream.protocol.settings import Settings
from midstream.query.build import build_query
from midstream.query.query import Query
from midstream.query.stream import ColumnRef, Stream
from midstream.values import Micros

COMMON, RARE = 0.05, 0.0025
SCHEMA = pa.schema([("id", pa.int64()), ("k", pa.int64()), ("ts", pa.timestamp("us", "UTC"))])


def names_of(streams: int) -> tuple[str, ...]:
    """A, B, C ..."""
    return tuple("ABCDEFGH"[:streams])


def clique_of(names: tuple[str, ...], window: int) -> Query:
    """All streams by one key, within so many seconds; results have one column, since nobody reads them."""
    streams = [Stream(n, SCHEMA, ColumnRef(n, ("ts",)), Micros(0)) for n in names]
    on = [f"{a}.k = {b}.k" for a, b in pairwise(names)]
    return build_query(streams, on, default_window=Micros(window * SECOND), select=["A.id"])


@dataclass(frozen=True)
class Experiment:
    """The paper's parameters, with its defaults."""

    streams: int = 6
    window: int = 180
    rate: float = 1.0
    warm_up: int = 5
    """Windows before the migration begins."""
    warm_up_epoch_seconds: int = 15
    """Seconds in an epoch of the warm-up; each epoch of the migration is one second."""

    @property
    def names(self) -> tuple[str, ...]:
        """A, B, C ..."""
        return names_of(self.streams)

    def query(self) -> Query:
        """The clique."""
        return clique_of(self.names, self.window)

    def epochs(self) -> tuple[list[dict[str, pa.Table]], list[dict[str, pa.Table]]]:
        """The input before the migration, and for 1.2 windows after."""
        random = np.random.default_rng(7)
        start = self.warm_up * self.window
        before = range(0, start, self.warm_up_epoch_seconds)
        warm = [self._epoch(random, s, self.warm_up_epoch_seconds, self.names[0]) for s in before]
        after = range(start, start + round(1.2 * self.window))
        return warm, [self._epoch(random, s, 1, self.names[-1]) for s in after]

    def _epoch(self, random: np.random.Generator, begin: int, seconds: int, rare: str) -> dict[str, pa.Table]:
        tables = {}
        for name in self.names:
            count = int(random.poisson(self.rate * seconds))
            times = np.sort(random.uniform(begin, begin + seconds, count) * SECOND).astype(np.int64)
            keys = random.integers(0, round(1 / COMMON), count)
            if name == rare:
                # One in twenty has a value that others have as well: 0.05 of 0.05 is 0.0025.
                unique = random.integers(1 << 40, 1 << 60, count)
                keys = np.where(random.random(count) < RARE / COMMON, keys, unique)
            ids = np.arange(count) + (begin << 20)
            tables[name] = pa.table([ids, keys, times.view("datetime64[us]")], schema=SCHEMA)
        return tables


@dataclass(frozen=True)
class MigrationTrace:
    """What a migration cost, second by second."""

    comparisons: list[int]
    rows: list[int]
    """Rows of all states, and results that wait."""
    results: list[int]
    seconds_until_end: int
    """Seconds until the old plan was gone."""


def right_deep(names: tuple[str, ...]) -> Plan:
    """The new plan of the paper."""
    plan = leaf(names[-1])
    for name in reversed(names[:-1]):
        plan = join(leaf(name), plan)
    return plan


def last_two_first(names: tuple[str, ...]) -> Plan:
    """The new plan of the paper's experiment on sharing: left-deep, but the last two are joined first."""
    return join(left_deep(names[:-2]), join(leaf(names[-2]), leaf(names[-1])))


@contextmanager
def without_retention() -> Iterator[None]:
    """Let the old plan keep all that it makes, as in the paper, for comparison."""
    with patch.object(combined_layout, "retention_bounds", lambda *_: {}):
        yield


@contextmanager
def sharing_base_states_only() -> Iterator[None]:
    """Let the plans share no state of joined rows, for comparison."""
    add = state_match._Matching.add

    def as_if_only_the_new_plan_had_it(matching: Any, location: Any) -> None:
        if not location.state.is_base:
            matching.old_locations.pop(location.state.streams, None)
        add(matching, location)

    with patch.object(state_match._Matching, "add", as_if_only_the_new_plan_had_it):
        yield


def measure(
    experiment: Experiment,
    plan: Plan,
    strategy: str,
    *,
    background: bool = False,
    isolated: bool | None = None,
) -> MigrationTrace:
    """Run the experiment and count."""
    query = InlineJoin(experiment.query(), left_deep(experiment.names), settings=Settings(1, 1))
    warm, measured = experiment.epochs()
    for epoch in warm:
        query.run_epoch(epoch)
    query.migrate(plan, strategy, background="auto" if background else "off", isolated=isolated)
    comparisons, rows, results = [], [], []
    seconds_until_end = len(measured)
    for second, epoch in enumerate(measured):
        results.append(query.run_epoch(epoch, background_epochs=1).num_rows)
        comparisons.append(query.report.work.comparisons)
        rows.append(sum(s.rows for s in query.manifest.slices if s.owner.kind != "payload"))
        if query.manifest.migration is None:
            seconds_until_end = min(seconds_until_end, second)
    return MigrationTrace(comparisons, rows, results, seconds_until_end)


CONTESTANTS: dict[str, tuple[str, bool]] = {
    "moving_state": ("moving_state", False),
    "parallel_track": ("parallel_track", False),
    "hybrid, background off": ("hybrid", False),
    "hybrid, background auto": ("hybrid", True),
}


def run(console: Console) -> dict[str, Any]:
    """Both experiments, as tables; also what they say in figures."""
    experiment = Experiment()
    costs = {
        name: measure(experiment, right_deep(experiment.names), strategy, background=background)
        for name, (strategy, background) in CONTESTANTS.items()
    }
    _show(console, "left-deep to right-deep, six streams, 3 minutes", costs)
    sharing: dict[str, MigrationTrace] = {}
    for streams in (4, 5, 6):
        experiment = Experiment(streams)
        share = partial(measure, experiment, last_two_first(experiment.names), "hybrid", isolated=False)
        sharing[f"{streams} streams, sharing"] = share()
        with sharing_base_states_only():
            sharing[f"{streams} streams, not"] = share()
            with without_retention():
                sharing[f"{streams} streams, not, and all is kept"] = share()
    _show(console, "left-deep to the last two first, hybrid, background off", sharing)
    return {name: vars(cost) for name, cost in {**costs, **sharing}.items()}


def _show(console: Console, title: str, costs: dict[str, MigrationTrace]) -> None:
    table = Table(title=f"Migration, counted: {title}")
    columns = ["", "comparisons", "in the worst second", "peak rows of state", "lasted", "results"]
    track = costs.get("parallel_track")
    above = "seconds above parallel track: comparisons, rows"
    for column in [*columns, above] if track else columns:
        table.add_column(column, justify="right" if column else "left")
    for name, cost in costs.items():
        figures = (sum(cost.comparisons), max(cost.comparisons), max(cost.rows))
        shown = [f"{figure:,}" for figure in figures]
        shown += [f"{cost.seconds_until_end} s", f"{sum(cost.results):,}"]
        if track is not None:
            pairs = ((cost.comparisons, track.comparisons), (cost.rows, track.rows))
            shown.append(", ".join(str(_seconds_above(*pair, track.seconds_until_end)) for pair in pairs))
        table.add_row(name, *shown)
    console.print(table)


def _seconds_above(costs: list[int], baseline: list[int], seconds: int) -> int:
    return sum(a > b for a, b in list(zip(costs, baseline, strict=True))[:seconds])


if __name__ == "__main__":
    run(Console())
