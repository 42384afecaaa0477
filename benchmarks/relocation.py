"""Relocation as in the paper on spilling and relocation: figures 9 to 14, counted, in this process.

One join of three streams without a window, a row of each every 30 ms, as in figures 5 to 7 (``spilling.py``).
Machines are engine partitions; what differs is how groups are divided at first, and which rows come.

- Figures 9 and 10: two partitions, whose groups get ten times more rows than those of the other in turns.
  What relocations cost for each threshold, and how even the state is.
- Figure 11: one of three has 60 % of the groups, and memory is enough for all state, but not there.
- Figure 12: one of three has two thirds; and memory that is not enough anywhere, with what the cleanup takes.
- Figures 13 and 14: groups of one partition produce more, and memory is not enough anywhere.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
from rich.console import Console
from rich.table import Table

from benchmarks.spilling import GROUPS, TUPLE_RANGE, UNLIMITED, Key, RunWithCleanup, one_join
from midstream.engine.arrays import as_column
from midstream.engine.hashing import group_of, hash_key
from midstream.engine.places import Places
from midstream.inline import InlineJoin
from midstream.memory.balance import BalanceSettings
from midstream.memory.next_step import memory_context
from midstream.memory.settings import MemorySettings
from midstream.protocol.rescaling import first_routing, places_of
from midstream.protocol.settings import Settings

_MICROS_PER_ROW = 30_000
_EPOCH_MICROS = 15_000_000
_EPOCHS_PER_MINUTE = 60_000_000 // _EPOCH_MICROS
_SPILL_LIMIT = 100 / 60
"""What the paper spills for others' sake at most, in budgets of a machine."""

Numbers = np.ndarray[Any, np.dtype[np.int64]]
Weights = np.ndarray[Any, np.dtype[np.float64]]


@dataclass(frozen=True)
class Source:
    """Which values come, and how often, which may change with time."""

    values: Numbers
    weights: Callable[[float], Weights]
    """For each value, at a minute of the run."""
    minutes: int = 40

    def epochs(self) -> Iterator[dict[str, pa.Table]]:
        """The input, a quarter of a minute at a time."""
        random, schema = np.random.default_rng(7), one_join(Key(1)).query().streams[0].schema
        rows = _EPOCH_MICROS // _MICROS_PER_ROW
        for number in range(self.minutes * _EPOCHS_PER_MINUTE):
            weights = self.weights(number / _EPOCHS_PER_MINUTE)
            ids = np.arange(number * rows, (number + 1) * rows)
            times = (ids * _MICROS_PER_ROW).view("datetime64[us]")
            yield {
                name: pa.table(
                    [ids, random.choice(self.values, rows, p=weights / weights.sum()), times], schema=schema
                )
                for name in "abc"
            }


@dataclass
class RelocationRun(RunWithCleanup):
    """What came of a run."""

    active: list[list[float]] = field(default_factory=list)
    """The active bytes of each partition after each epoch."""
    relocations: int = 0
    moved: int = 0
    """The bytes that were relocated."""
    forced: int = 0
    """How many of the spills were for the sake of other partitions."""
    work: float = 0.0
    seconds: float = 0.0
    """Processor time."""
    cleanup_work: defaultdict[int, float] = field(default_factory=lambda: defaultdict(float))
    """By partition."""

    @property
    def fullest(self) -> float:
        """The share of the active state that the fullest partition has, on average over the epochs."""
        return float(np.mean([max(active) / sum(active) for active in self.active]))

    @property
    def total(self) -> float:
        """The active state in the end."""
        return sum(self.active[-1])


def measure(source: Source, settings: Settings) -> RelocationRun:
    """Run a source to its end, then make what is owed."""
    query = one_join(Key(1)).query()
    join, run = InlineJoin(query, "a b c", settings=settings), RelocationRun()
    for arrivals in source.epochs():
        begin = time.process_time()
        run.results.append(join.run_epoch(arrivals).num_rows)
        run.seconds += time.process_time() - begin
        run.work += sum(join.report.partition_work.values())
        context = memory_context(query, join.manifest, places_of(join.manifest))
        run.active.append(list(context.sizes(join.manifest.slices).active))
        for event in (join.lastProgress or {})["events"]:
            run.relocations += event["type"] == "state-relocated"
            run.moved += event["bytes"] if event["type"] == "state-relocated" else 0
            run.spills += event["type"] == "state-spilled"
            run.forced += event["type"] == "state-spilled" and "produce more" in event["reason"]
    while join.coordinator.owes(join.manifest):
        results = join.run_drain_epoch()
        run.cleanup_results += 0 if results is None else results.num_rows
        for partition, work in join.report.partition_work.items():
            run.cleanup_work[partition] += work
    return run


def _settings(
    shares: tuple[int, ...], memory: MemorySettings, balance: BalanceSettings | None = None
) -> Settings:
    even = len(set(shares)) == 1
    return Settings(
        len(shares),
        GROUPS,
        memory=memory,
        balance=balance or BalanceSettings(),
        shares=() if even else shares,
        max_event_time_ahead=None,
    )


def _partition_of(values: Numbers, shares: tuple[int, ...]) -> Numbers:
    """The partitions that values have at first."""
    places = Places(GROUPS, (first_routing(_settings(shares, UNLIMITED)),))
    groups = group_of(hash_key([as_column(values)], len(values)), GROUPS)
    partitions: Numbers = np.array(places.routing((0,)).partitions)[groups]
    return partitions


def _uniform(minutes: int = 40) -> Source:
    """Every value three times in 30,000 rows."""
    values = np.arange(TUPLE_RANGE // 3)
    return Source(values, lambda _minute: np.ones(len(values)), minutes)


def _alternating() -> Source:
    """Groups of the first partition get ten times more rows for five minutes, then the others for ten."""
    values = np.arange(TUPLE_RANGE // 3)
    partitions = _partition_of(values, (1, 1))

    def weights(minute: float) -> Weights:
        return np.where(partitions == (minute + 5) // 10 % 2, 10.0, 1.0)

    return Source(values, weights)


def _by_partition(rates: tuple[int, ...], ranges: tuple[int, ...]) -> Source:
    """As many rows for the groups of each partition; their values come so often within a range of rows."""
    even = (1,) * len(rates)
    values = np.arange(2 * len(rates) * max(ranges))
    partitions = _partition_of(values, even)
    chosen = [
        values[partitions == p][: round(of / rate / len(rates))]
        for p, (rate, of) in enumerate(zip(rates, ranges, strict=True))
    ]
    weights = np.concatenate([np.full(len(of), 1 / len(of)) for of in chosen])
    return Source(np.concatenate(chosen), lambda _minute: weights)


def run(console: Console) -> dict[str, Any]:
    """All experiments, as tables."""
    return {
        "threshold": _thresholds(console),
        "relocation or spill": _lazy(console, "Relocation or spill (figure 11)", (3, 1, 1), 0.4),
        "lazy": _lazy(console, "lazy_disk (figure 12)", (4, 1, 1), 0.25),
        "all full": _lazy(
            console, "lazy_disk where no partition has room (text of figure 12)", (4, 1, 1), 0.1
        ),
        "active, 1": _active(console, "other rates", _by_partition((4, 1, 1), (30_000,) * 3)),
        "active, 2": _active(
            console, "other rates and ranges", _by_partition((4, 1, 1), (15_000, 45_000, 45_000))
        ),
    }


def _thresholds(console: Console) -> dict[str, Any]:
    source = _alternating()
    runs = {"no relocation": measure(source, _settings((1, 1), UNLIMITED))}
    for threshold in (0.5, 0.6, 0.7, 0.8, 0.9):
        balance = BalanceSettings(mode="lazy_disk", threshold=threshold)
        runs[f"threshold {threshold:.0%}"] = measure(source, _settings((1, 1), UNLIMITED, balance))
    return _show(console, "Thresholds (figures 9 and 10)", runs, runs["no relocation"])


_LAZY = BalanceSettings(mode="lazy_disk")


def _lazy(console: Console, title: str, shares: tuple[int, ...], share_of_state: float) -> dict[str, Any]:
    """With a budget of a share of the whole state, and groups divided unevenly at the start."""
    source = _uniform()
    whole = measure(source, _settings(shares, UNLIMITED))
    memory = MemorySettings(round(share_of_state * whole.total))
    runs = {
        "no relocation": measure(source, _settings(shares, memory)),
        "lazy_disk": measure(source, _settings(shares, memory, _LAZY)),
    }
    return _show(console, title, runs, whole)


def _active(console: Console, title: str, source: Source) -> dict[str, Any]:
    shares = (1, 1, 1)
    whole = measure(source, _settings(shares, UNLIMITED))
    memory = MemorySettings(round(0.2 * whole.total))
    limit = round(_SPILL_LIMIT * memory.budget)
    runs = {
        "no relocation": measure(source, _settings(shares, memory)),
        "lazy_disk": measure(source, _settings(shares, memory, _LAZY)),
        "active_disk": measure(source, _settings(shares, memory, BalanceSettings(mode="active_disk"))),
        "active_disk, the paper's limit": measure(
            source, _settings(shares, memory, BalanceSettings(mode="active_disk", forced_spill=limit))
        ),
    }
    return _show(console, f"active_disk (figures 13 and 14), {title}", runs, whole)


def _show(
    console: Console, title: str, runs: Mapping[str, RelocationRun], whole: RelocationRun
) -> dict[str, Any]:
    table = Table(title=f"Relocation, counted: {title}")
    columns = (
        "run-time results",
        "of all",
        "in the last minutes",
        "relocations",
        "moved",
        "spills",
        "forced",
    )
    more = ("fullest has", "work", "time", "made by cleanup", "its work", "in the busiest")
    for column in ("", *columns, *more):
        table.add_column(column, justify="right" if column else "left")
    for name, of_run in {"all in memory": whole, **runs}.items():
        if of_run.run_time + of_run.cleanup_results != whole.run_time:
            raise SystemExit(f"{name}: {of_run.run_time + of_run.cleanup_results:,}, not {whole.run_time:,}")
        table.add_row(
            name,
            f"{of_run.run_time:,}",
            f"{of_run.run_time / whole.run_time:.0%}",
            f"{sum(of_run.results[-4 * _EPOCHS_PER_MINUTE :]):,}",
            f"{of_run.relocations}",
            f"{of_run.moved / 1e6:.1f} MB",
            f"{of_run.spills}",
            f"{of_run.forced}",
            f"{of_run.fullest:.0%}",
            f"{of_run.work:,.0f}",
            f"{of_run.seconds:.1f} s",
            f"{of_run.cleanup_results:,}",
            f"{sum(of_run.cleanup_work.values()):,.0f}",
            f"{max(of_run.cleanup_work.values(), default=0.0):,.0f}",
        )
    console.print(table)
    return {name: vars(of_run) for name, of_run in runs.items()}


if __name__ == "__main__":
    run(Console(width=240))
