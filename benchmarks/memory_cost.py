"""What a budget of memory costs: one that is never reached, and one that is a tenth of the state.

The same rows go to four queries, in turns, epoch by epoch, in this process; the last one then makes what it
owes. Only ratios of processor time say something. All results are compared.
"""

from __future__ import annotations

import gc
import time
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
from rich.console import Console
from rich.table import Table

from midstream.inline import InlineJoin
from midstream.memory.settings import MemorySettings
from midstream.protocol.settings import Settings
from midstream.query.build import build_query
from midstream.query.query import Query
from midstream.query.stream import ColumnRef, Stream
from midstream.values import Micros

SCHEMA = pa.schema(
    [("id", pa.int64()), ("k", pa.int64()), ("m", pa.int64()), ("ts", pa.timestamp("us", "UTC"))]
)
EPOCH_MICROS = 1_000_000
PARTITIONS, GROUPS = 2, 128
REPETITIONS = 6


@dataclass(frozen=True)
class Setting:
    """A query, and how many rows it gets."""

    about: str
    plan: str
    keys: str
    """The key by which each stream is joined with the next."""
    epochs: int
    rows: int
    """Of each stream in each epoch."""
    window_epochs: int | None
    """None without a window."""

    @property
    def names(self) -> str:
        """The names of the streams."""
        return "abcde"[: len(self.keys) + 1]

    def query(self) -> Query:
        """The join of all streams."""
        streams = [Stream(n, SCHEMA, ColumnRef(n, ("ts",)), Micros(0)) for n in self.names]
        on = [f"{a}.{k} = {b}.{k}" for (a, b), k in zip(pairwise(self.names), self.keys, strict=True)]
        window = None if self.window_epochs is None else Micros(self.window_epochs * EPOCH_MICROS)
        return build_query(streams, on, default_window=window, select=[f"{n}.id" for n in self.names])

    def epoch(self, number: int) -> dict[str, pa.Table]:
        """The rows of an epoch; in all that is joined, a row matches about one row of every other stream."""
        random = np.random.default_rng(number)
        values = self.rows * (self.window_epochs or self.epochs)
        tables = {}
        for name in self.names:
            times = np.sort(random.integers(0, EPOCH_MICROS, self.rows)) + number * EPOCH_MICROS
            ids = np.arange(number * self.rows, (number + 1) * self.rows)
            keys = [random.integers(0, values, self.rows) for _ in range(2)]
            tables[name] = pa.table([ids, *keys, times.view("datetime64[us]")], schema=SCHEMA)
        return tables


SETTINGS = (
    Setting("3 streams, 1 key, no window", "a b c", "kk", 40, 10_000, None),
    Setting("3 streams, 1 key, pairs, a window", "(a b) c", "kk", 40, 10_000, 20),
    Setting("4 streams, 2 keys, a window", "((a b) c) d", "kkm", 40, 10_000, 20),
)


class _Contestant:
    """A query, its results and the processor time that it took."""

    def __init__(self, setting: Setting, budget: int | None) -> None:
        memory = None if budget is None else MemorySettings(budget)
        settings = Settings(PARTITIONS, GROUPS, memory=memory, max_event_time_ahead=None)
        self.join = InlineJoin(setting.query(), setting.plan, settings=settings)
        self.results: list[pa.Table] = []
        self.seconds: list[float] = []
        self.drain_seconds = 0.0

    def epoch(self, arrivals: dict[str, pa.Table]) -> None:
        begin = time.process_time()
        self.results.append(self.join.run_epoch(arrivals))
        self.seconds.append(time.process_time() - begin)

    def drain(self) -> None:
        begin = time.process_time()
        self.results.append(self.join.drain())
        self.drain_seconds = time.process_time() - begin

    def all_results(self) -> pa.Table:
        table = pa.concat_tables(self.results)
        return table.sort_by([(name, "ascending") for name in table.column_names])

    @property
    def state_bytes(self) -> int:
        """Bytes of the busiest partition."""
        by_partition = dict.fromkeys(range(PARTITIONS), 0)
        for slice_ in self.join.manifest.slices:
            by_partition[slice_.owner.partition] += slice_.bytes
        return max(by_partition.values())


def measure(setting: Setting) -> dict[str, Any]:
    """Run a setting with all contestants, several times; of each epoch the fastest run counts."""
    # How large the state becomes is the same in every run.
    whole = _Contestant(setting, None)
    for number in range(setting.epochs):
        whole.epoch(setting.epoch(number))
    expected, budget = whole.all_results(), whole.state_bytes // 10
    runs = [_run(setting, number, expected, budget) for number in range(REPETITIONS)]
    return {
        name: {
            "seconds": np.min([run[name]["seconds"] for run in runs], axis=0).tolist(),
            "drain": min(run[name]["drain"] for run in runs),
            "results": contestant["results"],
            "late": contestant["late"],
        }
        for name, contestant in runs[0].items()
    }


def _run(setting: Setting, turn: int, expected: pa.Table, budget: int) -> dict[str, Any]:
    contestants = {
        "no budget": _Contestant(setting, None),
        # What differs from the first is what this measurement cannot tell.
        "the same again": _Contestant(setting, None),
        "never reached": _Contestant(setting, 1 << 50),
        "a tenth": _Contestant(setting, budget),
    }
    gc.collect()
    for number in range(setting.epochs):
        arrivals = setting.epoch(number)
        # Whoever comes first in an epoch finds less in the caches of the processor.
        order = list(contestants.values())
        first = (number + turn) % len(order)
        for contestant in order[first:] + order[:first]:
            contestant.epoch(arrivals)
    contestants["a tenth"].drain()
    for name, contestant in contestants.items():
        if contestant.all_results() != expected:
            raise SystemExit(f"{setting.about}: {name}: the results differ")
    return {
        name: {
            "seconds": c.seconds,
            "drain": c.drain_seconds,
            "results": sum(t.num_rows for t in c.results),
            "late": c.results[-1].num_rows if c.drain_seconds else 0,
        }
        for name, c in contestants.items()
    }


def run(console: Console) -> dict[str, Any]:
    """All settings, as a table."""
    figures = {setting.about: measure(setting) for setting in SETTINGS}
    table = Table(title="What a budget costs, in processor time")
    columns = ("", "none", "again", "unused", "a tenth", "drain", "in all", "results")
    for column in (*columns, "by drain"):
        table.add_column(column, justify="right" if column else "left")
    for about, of_setting in figures.items():
        base, again, unused, tenth = (np.array(of_setting[name]["seconds"]) for name in of_setting)
        drain = of_setting["a tenth"]["drain"]
        table.add_row(
            about,
            f"{base.sum():.1f} s",
            f"{again.sum() / base.sum() - 1:+.1%}",
            f"{unused.sum() / base.sum() - 1:+.1%}",
            f"{tenth.sum() / base.sum():.2f} x",
            f"{drain / base.sum():.2f} x",
            f"{(tenth.sum() + drain) / base.sum():.2f} x",
            f"{of_setting['a tenth']['results']:,}",
            f"{of_setting['a tenth']['late']:,}",
        )
    console.print(table)
    return figures


if __name__ == "__main__":
    run(Console())
