"""How good estimates are: estimated sizes of joins compared with their true sizes.

Random queries over streams that no constant was tuned on: keys uniform, skewed, correlated with time or with
each other, or drifting; three to five streams, over one key or a chain of keys. After some windows, for every
connected set of streams, the estimated rate is compared with a batch join of the last window's input.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa
from rich.console import Console
from rich.table import Table

from midstream.adapt.estimate import Estimator
from midstream.adapt.statistics import advance, samplings
from midstream.engine.encode import time_column
from midstream.engine.event_times import TimeRange
from midstream.engine.key_sample import KeyCounts, count_keys
from midstream.plan.layout import key_column
from midstream.query.build import build_query
from midstream.query.query import Query
from midstream.query.stream import ColumnRef, Stream
from midstream.state.statistics import Statistics
from midstream.values import MICROS_PER_SECOND, Micros

KINDS = ("uniform", "zipf", "correlated", "drifting")
QUERIES = 240
EPOCHS_IN_WINDOW = 10
WINDOWS = 3
MIN_RATE = 1e-3
"""Added to rates, so that joins that hardly make any rows count as estimated well."""
SCHEMA = pa.schema(
    [("id", pa.int64()), ("k0", pa.int64()), ("k1", pa.int64()), ("ts", pa.timestamp("us", "UTC"))]
)


@dataclass(frozen=True, kw_only=True)
class RandomQuery:
    """A random query and its input."""

    kind: str
    names: tuple[str, ...]
    chain: bool
    """Whether neighbours join by alternating keys; else all streams join by one."""
    window: int
    rates: tuple[float, ...]
    domains: tuple[int, ...]
    skew: float
    seed: int

    def query(self) -> Query:
        """The query; results have one column, since nobody reads them."""
        streams = [Stream(n, SCHEMA, ColumnRef(n, ("ts",)), Micros(0)) for n in self.names]
        on = []
        for i, (a, b) in enumerate(zip(self.names, self.names[1:], strict=False)):
            key = f"k{i % 2}" if self.chain else "k0"
            on.append(f"{a}.{key} = {b}.{key}")
        return build_query(
            streams,
            on,
            default_window=Micros(self.window * MICROS_PER_SECOND),
            select=[f"{self.names[0]}.id"],
        )

    def rows(self, random: np.random.Generator, name: str, begin: float, seconds: float) -> pa.Table:
        """What a stream brings in some seconds."""
        number = self.names.index(name)
        count = int(random.poisson(self.rates[number] * seconds))
        times = np.sort(random.uniform(begin, begin + seconds, count))
        first = self._keys(random, times, self.domains[number])
        second = self._keys(random, times, self.domains[number])
        if self.kind == "correlated" and self.chain:
            # Half of the rows have a second key that follows from the first.
            second = np.where(random.random(count) < 0.5, first, second)
        micros = (times * MICROS_PER_SECOND).astype(np.int64).view("datetime64[us]")
        return pa.table([np.arange(count), first, second, micros], schema=SCHEMA)

    def _keys(
        self, random: np.random.Generator, times: npt.NDArray[np.float64], domain: int
    ) -> npt.NDArray[np.int64]:
        count = len(times)
        if self.kind == "zipf":
            shares = np.cumsum(np.arange(1, domain + 1) ** -self.skew)
            return np.searchsorted(shares, random.uniform(0, shares[-1], count))
        keys = random.integers(0, domain, count)
        if self.kind == "correlated" and not self.chain:
            # Keys come and go, like the numbers of orders: all streams have the same ones at a time.
            return (times * domain / self.window + random.uniform(0, domain / 8, count)).astype(np.int64)
        if self.kind == "drifting":
            # The range from which keys are drawn moves on, by half of itself in a window.
            return (keys + times * domain / 2 / self.window).astype(np.int64)
        return keys


def draw(seed: int) -> RandomQuery:
    """A query; the same for a seed."""
    random = np.random.default_rng(seed)
    count = int(random.integers(3, 6))
    window = int(random.integers(20, 60))
    # Joins of skewed keys are large, and have to be counted.
    max_rate = 15 if KINDS[seed % len(KINDS)] == "zipf" else 60
    rates = tuple(float(r) for r in random.uniform(5, max_rate, count))
    # Rows of another stream's window that a row matches.
    matches = random.uniform(0.1, 3, count)
    domains = tuple(int(max(10, r * window / m)) for r, m in zip(rates, matches, strict=True))
    # Domains that drift must be of one size, or soon nothing would match.
    if random.random() < 0.5 or KINDS[seed % len(KINDS)] in ("correlated", "drifting"):
        domains = (max(domains),) * count
    return RandomQuery(
        kind=KINDS[seed % len(KINDS)],
        names=tuple("abcde"[:count]),
        chain=bool(seed // len(KINDS) % 2),
        window=window,
        rates=rates,
        domains=domains,
        skew=float(random.uniform(0.4, 1.0)),
        seed=seed,
    )


def errors(drawn: RandomQuery) -> list[float]:
    """The q-error of every connected set of streams: how many times too large or too small."""
    query = drawn.query()
    random = np.random.default_rng(drawn.seed + 1)
    statistics = Statistics()
    step = drawn.window / EPOCHS_IN_WINDOW
    # The first epoch only says when time begins.
    statistics = _advance(query, statistics, 0.0, {name: SCHEMA.empty_table() for name in drawn.names})
    history: dict[str, list[pa.Table]] = {name: [] for name in drawn.names}
    for epoch in range(WINDOWS * EPOCHS_IN_WINDOW):
        arrived = {name: drawn.rows(random, name, epoch * step, step) for name in drawn.names}
        statistics = _advance(query, statistics, step, arrived)
        for name, table in arrived.items():
            history[name].append(table)
    estimator = Estimator(query, statistics)
    frames = {name: pl.from_arrow(pa.concat_tables(tables)) for name, tables in history.items()}
    q_errors = []
    for size in range(2, len(drawn.names)):
        for streams in combinations(drawn.names, size):
            if is_connected(query, streams):
                true_rate = _true_rate(drawn, query, frames, streams) + MIN_RATE
                estimated_rate = estimator.rate(streams) + MIN_RATE
                q_errors.append(max(estimated_rate / true_rate, true_rate / estimated_rate))
    return q_errors


def _advance(
    query: Query, statistics: Statistics, seconds: float, arrived: dict[str, pa.Table]
) -> Statistics:
    """The statistics after an epoch; they only need the rows of the streams, and no join."""
    sampling = samplings(query, statistics)
    keys: dict[str, KeyCounts] = {}
    for name, table in arrived.items():
        columns = {key_column(name, c.id): c.of(name) for c in query.classes if name in c.streams}
        by_class = {column: table.column(refs[0].path[0]) for column, refs in columns.items()}
        by_class[time_column(name)] = table.column("ts").cast(pa.int64())
        keys |= count_keys(query, name, (), pa.table(by_class), sampling)
    rows = {name: table.num_rows for name, table in arrived.items()}
    start = next((s.position for s in statistics.streams.values() if s.position is not None), 0)
    end = start + round(seconds * MICROS_PER_SECOND)
    ranges = {name: TimeRange(start, end, count) for name, count in rows.items()}
    return advance(query, statistics, ranges=ranges, sizes=rows, keys=keys, produced=None)


def is_connected(query: Query, streams: tuple[str, ...]) -> bool:
    """Whether key classes lead from every stream to every other."""
    reached = {streams[0]}
    while True:
        neighbours = {n for c in query.classes if c.streams & reached for n in streams if n in c.streams}
        if neighbours <= reached:
            return reached == set(streams)
        reached |= neighbours


def _true_rate(drawn: RandomQuery, query: Query, frames: dict[str, Any], streams: tuple[str, ...]) -> float:
    """Rows of the join per second whose newest component came in the last window."""
    end = WINDOWS * drawn.window
    joined: Any = None
    names: list[str] = []
    waiting = list(streams)
    while waiting:
        name = next(n for n in waiting if not names or _keys_between(query, names, n))
        waiting.remove(name)
        frame = frames[name].select(pl.col("k0", "k1", "ts").name.prefix(f"{name}_")).lazy()
        # Rows of the last window match rows of the last two.
        frame = frame.filter(
            pl.col(f"{name}_ts").dt.timestamp("us") >= (end - 2 * drawn.window) * MICROS_PER_SECOND
        )
        if joined is None:
            joined = frame
        else:
            pairs = _keys_between(query, names, name)
            joined = joined.join(
                frame, left_on=[p[0] for p in pairs], right_on=[p[1] for p in pairs], coalesce=False
            )
            for other in names:
                distance = (pl.col(f"{other}_ts") - pl.col(f"{name}_ts")).abs()
                joined = joined.filter(distance <= pl.duration(seconds=drawn.window))
        names.append(name)
    newest = pl.max_horizontal(*(pl.col(f"{n}_ts").dt.timestamp("us") for n in streams))
    rows = joined.filter(newest >= (end - drawn.window) * MICROS_PER_SECOND).select(pl.len()).collect().item()
    return float(rows) / drawn.window


def _keys_between(query: Query, joined: list[str], name: str) -> list[tuple[str, str]]:
    """The pairs of columns by which a stream is joined to some others."""
    pairs = []
    for key_class in query.classes:
        own = key_class.of(name)
        other = next((key_class.of(s)[0] for s in joined if key_class.of(s)), None)
        if own and other is not None:
            pairs.append((f"{other.stream}_{other.path[0]}", f"{name}_{own[0].path[0]}"))
    return pairs


def run(console: Console, queries: int = QUERIES) -> dict[str, Any]:
    """The q-errors of all queries, by kind of keys."""
    q_errors: dict[str, list[float]] = {kind: [] for kind in KINDS}
    for seed in range(queries):
        drawn = draw(seed)
        q_errors[drawn.kind] += errors(drawn)
    q_errors["all"] = [error for kind in KINDS for error in q_errors[kind]]
    table = Table(title=f"Estimated intermediate sizes, {queries} queries: q-error")
    for column in ("keys", "estimates", "median", "95 %", "worst"):
        table.add_column(column, justify="left" if column == "keys" else "right")
    for kind, of_kind in q_errors.items():
        figures = (np.median(of_kind), np.quantile(of_kind, 0.95), max(of_kind))
        table.add_row(kind, f"{len(of_kind):,}", *(f"{figure:.2f}" for figure in figures))
    console.print(table)
    return {
        kind: {"median": float(np.median(of_kind)), "p95": float(np.quantile(of_kind, 0.95))}
        for kind, of_kind in q_errors.items()
    }


if __name__ == "__main__":
    run(Console())
