"""What skew costs: the share of the work, and the processor time, of the busiest engine partition.

Two streams over one key, in one process: uniform keys, one key with 30 % of all rows, and keys by Zipf's law;
with hot keys shared and without. And groups divided unevenly, with balance and without.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from rich.console import Console
from rich.table import Table

from midstream.engine.routed_rows import Arrivals, RoutedRows
from midstream.inline import InlineJoin
from midstream.memory import hot_keys
from midstream.memory.balance import BalanceSettings
from midstream.memory.next_step import memory_context
from midstream.protocol.rescaling import places_of
from midstream.protocol.settings import Settings
from midstream.query.build import build_query
from midstream.query.query import Query
from midstream.query.stream import ColumnRef, Stream
from midstream.runtime.partition_task import StageRun
from midstream.values import MICROS_PER_SECOND, Micros

EPOCHS, MEASURED, EPOCH_SECONDS = 40, 20, 4
ROWS = {"a": 2_000, "b": 200}
KEYS = 3_000
ZIPF = 1.2
HOT_SHARE = 0.3
WINDOW = Micros(10 * MICROS_PER_SECOND)
UNEVEN = (4, 1, 1)


@dataclass(frozen=True)
class Figures:
    """What the measured epochs of a run have taken."""

    results: int
    busiest_share: float
    work: float
    busiest_ms: float
    """Processor time of an epoch in the busiest partition."""
    all_ms: float
    fullest_share: float
    """The share of the active state that the fullest partition has in the end."""


def make_query() -> Query:
    """An equality of two streams, within a window."""
    schema = pa.schema([("t", pa.timestamp("us", tz="UTC")), ("k", pa.int64()), ("v", pa.int64())])
    streams = [Stream(name, schema, ColumnRef(name, ("t",)), Micros(0)) for name in ROWS]
    return build_query(streams, ["a.k = b.k"], default_window=WINDOW, select=["a.v AS a", "b.v AS b"])


def epochs(kind: str) -> Iterator[dict[str, pa.Table]]:
    """The rows of a kind of keys."""
    chance = np.random.default_rng(1)
    for number in range(EPOCHS):
        tables = {}
        for name, count in ROWS.items():
            span = EPOCH_SECONDS * MICROS_PER_SECOND
            times = number * span + np.sort(chance.integers(0, span, count))
            keys = _keys(kind, count, chance)
            columns = [pa.array(times).cast(pa.timestamp("us", tz="UTC")), pa.array(keys), pa.array(keys)]
            tables[name] = pa.table(columns, names=["t", "k", "v"])
        yield tables


def _keys(kind: str, count: int, chance: np.random.Generator) -> npt.NDArray[np.int64]:
    if kind == "zipf":
        weights = 1 / np.arange(1, KEYS + 1) ** ZIPF
        return chance.choice(KEYS, count, p=weights / weights.sum())
    keys = chance.integers(0, KEYS, count)
    if kind == "hot":
        keys[chance.random(count) < HOT_SHARE] = 7
    return keys


@contextmanager
def timed_partitions() -> Iterator[defaultdict[int, float]]:
    """The processor seconds that each partition takes meanwhile."""
    seconds: defaultdict[int, float] = defaultdict(float)
    real = StageRun.run

    def run(stage: StageRun, partition: int, arrivals: Arrivals) -> list[RoutedRows]:
        begin = time.process_time()
        outgoing = real(stage, partition, arrivals)
        seconds[partition] += time.process_time() - begin
        return outgoing

    with patch.object(StageRun, "run", run):
        yield seconds


def measure(kind: str, settings: Settings, *, shares_keys: bool) -> Figures:
    """Run a query over all epochs, and measure the last ones."""
    query = make_query()
    join = InlineJoin(query, settings=settings)
    results = 0
    work: defaultdict[int, float] = defaultdict(float)
    least = hot_keys.MIN_WORK if shares_keys else float("inf")
    with patch.object(hot_keys, "MIN_WORK", least), timed_partitions() as seconds:
        for number, epoch in enumerate(epochs(kind)):
            if number == EPOCHS - MEASURED:
                seconds.clear()
                work.clear()
            results += join.run_epoch(epoch).num_rows
            for partition, units in join.report.partition_work.items():
                work[partition] += units
    context = memory_context(query, join.manifest, places_of(join.manifest))
    active = context.sizes(join.manifest.slices).active
    return Figures(
        results,
        max(work.values()) / sum(work.values()),
        sum(work.values()) / MEASURED,
        1000 * max(seconds.values()) / MEASURED,
        1000 * sum(seconds.values()) / MEASURED,
        max(active) / sum(active),
    )


def run(console: Console) -> dict[str, Any]:
    """Measure all, and show them."""
    balance = BalanceSettings(mode="lazy_disk", pause=Micros(8 * MICROS_PER_SECOND))
    cases: Mapping[str, tuple[str, Settings, bool]] = {
        f"{kind} in {partitions}{', shared' if shares else ''}": (
            kind,
            Settings(partitions, 64),
            shares,
        )
        for partitions in (8, 2)
        for kind in ("uniform", "hot", "zipf")
        for shares in (False, True)
    }
    cases = {
        **cases,
        "uneven": ("uniform", Settings(3, 63, shares=UNEVEN), False),
        "uneven, lazy_disk": (
            "uniform",
            Settings(3, 63, shares=UNEVEN, balance=balance),
            False,
        ),
    }
    table = Table("keys", "results", "busiest does", "units/epoch", "busiest ms", "all ms", "fullest has")
    measured = {}
    for name, (kind, settings, shares) in cases.items():
        figures = measured[name] = measure(kind, settings, shares_keys=shares)
        table.add_row(
            name,
            f"{figures.results:,}",
            f"{figures.busiest_share:.0%}",
            f"{figures.work:,.0f}",
            f"{figures.busiest_ms:.1f}",
            f"{figures.all_ms:.1f}",
            f"{figures.fullest_share:.0%}",
        )
    console.print(table)
    return {name: vars(figures) for name, figures in measured.items()}
