"""Spilling as in the papers: which results come while the streams flow, and what is left for the cleanup.

Everything is counted, in this process, so it does not depend on the machine; only the time of a cleanup does.
As in the papers there is no window: state, and the results of a row, grow for as long as a run lasts. A value
of a group with join rate r comes r times in every 30,000 rows of a stream.

- One join of three streams, a row of each every 30 ms for 40 minutes: how much is spilled at once (figures 5
  and 6 of the paper on spilling and relocation), and less against more productive groups (figure 7).
- ((a b c) d) e with three keys, a row of each every 50 ms: the strategies, for three ratios of the joins
  (figures 16 to 20 of the paper on several operators).
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
from rich.console import Console
from rich.table import Table

from midstream.engine.arrays import as_column
from midstream.engine.hashing import group_of, hash_key
from midstream.inline import InlineJoin
from midstream.memory.settings import MemorySettings
from midstream.protocol.settings import Settings
from midstream.query.build import build_query
from midstream.query.query import Query
from midstream.query.stream import ColumnRef, Stream
from midstream.values import Micros

GROUPS = 300
TUPLE_RANGE = 30_000
_EPOCH_MICROS = 30_000_000
_ONE_RATE = (1.0, 1.0, 1.0)
_RATES = (4.0, 2.0, 1.0)
"""The join rates of each third of the groups, before they are scaled to their mean."""


@dataclass(frozen=True)
class Key:
    """How often the values of a key come."""

    mean_rate: float
    rates: tuple[float, float, float] = _RATES

    def draw(self, random: np.random.Generator, rows: int) -> np.ndarray[Any, np.dtype[np.int64]]:
        """Values of some rows; all values have the same mean rate, those of a third of the groups one."""
        values = np.arange(round(TUPLE_RANGE / self.mean_rate))
        thirds = group_of(hash_key([as_column(values)], len(values)), GROUPS) % len(self.rates)
        weights = np.array(self.rates)[thirds]
        return random.choice(values, rows, p=weights / weights.sum())


@dataclass(frozen=True)
class Setting:
    """A query, and how its keys come."""

    plan: str
    keys: Mapping[str, Key]
    columns: Mapping[str, Sequence[str]]
    """The keys that each stream has."""
    micros_per_row: int
    minutes: int

    def query(self) -> Query:
        """The join of all streams that share a key, without a window."""
        names = list(self.columns)
        streams = [Stream(n, self._schema(n), ColumnRef(n, ("ts",)), Micros(0)) for n in names]
        sharing = [[n for n in names if key in self.columns[n]] for key in self.keys]
        on = [
            f"{one}.{key} = {other}.{key}"
            for key, of_key in zip(self.keys, sharing, strict=True)
            for one, other in pairwise(of_key)
        ]
        return build_query(streams, on, default_window=None, select=[f"{names[0]}.id"])

    def epochs(self) -> Iterator[dict[str, pa.Table]]:
        """The input, half a minute at a time."""
        random = np.random.default_rng(7)
        rows = _EPOCH_MICROS // self.micros_per_row
        for number in range(self.minutes * 60_000_000 // _EPOCH_MICROS):
            ids = np.arange(number * rows, (number + 1) * rows)
            yield {
                name: pa.table(
                    [
                        ids,
                        *(self.keys[key].draw(random, rows) for key in keys),
                        (ids * self.micros_per_row).view("datetime64[us]"),
                    ],
                    schema=self._schema(name),
                )
                for name, keys in self.columns.items()
            }

    def _schema(self, name: str) -> pa.Schema:
        keys = [(key, pa.int64()) for key in self.columns[name]]
        return pa.schema([("id", pa.int64()), *keys, ("ts", pa.timestamp("us", "UTC"))])


@dataclass
class RunWithCleanup:
    """What came of a run within a budget, and of the cleanup after it."""

    results: list[int] = field(default_factory=list)
    """Of each epoch."""
    spills: int = 0
    cleanup_results: int = 0

    @property
    def run_time(self) -> int:
        """The results that came before the cleanup."""
        return sum(self.results)


@dataclass
class SpillingRun(RunWithCleanup):
    """The same, with what was active and what the cleanup took."""

    active: list[int] = field(default_factory=list)
    """Active bytes after each epoch."""
    cleanup_candidates: int = 0
    cleanup_seconds: float = 0.0


def measure(setting: Setting, memory: MemorySettings) -> SpillingRun:
    """Run a setting within a budget, then make what is owed."""
    settings = Settings(1, GROUPS, memory=memory, max_event_time_ahead=None)
    join, run = InlineJoin(setting.query(), setting.plan, settings=settings), SpillingRun()
    for arrivals in setting.epochs():
        run.results.append(join.run_epoch(arrivals).num_rows)
        progress = join.lastProgress or {}
        run.active.append(progress["memory"]["busiestPartitionBytes"])
        run.spills += any(event["type"] == "state-spilled" for event in progress["events"])
    begin = time.process_time()
    while join.coordinator.owes(join.manifest):
        results = join.run_drain_epoch()
        run.cleanup_results += 0 if results is None else results.num_rows
        run.cleanup_candidates += join.report.work.candidates
    run.cleanup_seconds = time.process_time() - begin
    return run


def one_join(key: Key, minutes: int = 40) -> Setting:
    """Three streams over one key, a row of each every 30 ms."""
    return Setting("a b c", {"k": key}, {"a": "k", "b": "k", "c": "k"}, 30_000, minutes)


def three_joins(ratios: Sequence[float], minutes: int = 20) -> Setting:
    """Five streams over three keys, a row of each every 50 ms."""
    keys = {name: Key(ratio) for name, ratio in zip("kmn", ratios, strict=True)}
    columns = {"a": "k", "b": "k", "c": "km", "d": "mn", "e": "n"}
    return Setting("((a b c) d) e", keys, columns, 50_000, minutes)


UNLIMITED = MemorySettings(1 << 50)


def run(console: Console) -> dict[str, Any]:
    """All experiments, as tables."""
    return {
        "share": _spilled_share(console),
        "productivity": _productivity(console),
        "strategies": _strategies(console),
    }


def _spilled_share(console: Console) -> dict[str, Any]:
    setting = one_join(Key(3, _ONE_RATE))
    whole = measure(setting, UNLIMITED)
    budget = round(0.4 * whole.active[-1])
    runs = {"all in memory": whole}
    for share in (0.1, 0.3, 0.5, 1.0):
        runs[f"{share:.0%} at once"] = measure(setting, MemorySettings(budget, "random", share))
    _show(console, "How much is spilled at once, random groups", runs)
    return {name: vars(run) for name, run in runs.items()}


def _productivity(console: Console) -> dict[str, Any]:
    setting = one_join(Key(7 / 3))
    whole = measure(setting, UNLIMITED)
    budget = round(0.4 * whole.active[-1])
    strategies = {"less productive first": "global_output", "more productive first": "most_productive"}
    runs = {"all in memory": whole} | {
        name: measure(setting, MemorySettings(budget, strategy)) for name, strategy in strategies.items()
    }
    _show(console, "Which groups are spilled first", runs)
    return {name: vars(run) for name, run in runs.items()}


def _strategies(console: Console) -> dict[str, Any]:
    figures = {}
    for ratios in ((3, 1, 1), (1, 3, 3), (3, 2, 3)):
        setting = three_joins(ratios)
        whole = measure(setting, UNLIMITED)
        runs = {"all in memory": whole}
        for strategy in ("global_output_penalty", "global_output", "local_output", "bottom_up"):
            runs[strategy] = measure(setting, MemorySettings(round(0.4 * whole.active[-1]), strategy))
        _show(console, f"Strategies, joins with ratios {ratios}", runs)
        figures[str(ratios)] = {name: vars(run) for name, run in runs.items()}
    return figures


def _show(console: Console, title: str, runs: Mapping[str, SpillingRun]) -> None:
    table = Table(title=f"Spilling, counted: {title}")
    columns = ("", "run-time results", "of all", "in the last minutes", "spills", "active, most")
    for column in (*columns, "made by cleanup", "its candidates", "its time"):
        table.add_column(column, justify="right" if column else "left")
    total = runs["all in memory"].run_time
    for name, run in runs.items():
        if run.run_time + run.cleanup_results != total:
            raise SystemExit(f"{name}: {run.run_time + run.cleanup_results:,} results instead of {total:,}")
        table.add_row(
            name,
            f"{run.run_time:,}",
            f"{run.run_time / total:.0%}",
            f"{sum(run.results[-8:]):,}",
            f"{run.spills}",
            f"{max(run.active) / 1e6:.1f} MB",
            f"{run.cleanup_results:,}",
            f"{run.cleanup_candidates:,}",
            f"{run.cleanup_seconds:.1f} s",
        )
    console.print(table)


if __name__ == "__main__":
    run(Console())
