"""How good estimates are: intermediate sizes as the statistics see them, against what really comes.

Random queries over streams that no tuning has seen: keys uniform, skewed, correlated with time or with each
other, or drifting; three to five streams, over one key or a chain of keys. After some windows, for every
connected set of streams, the estimated rate is held against the rows that a batch join of the next
window's input has.
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
from midstream.engine.key_sample import KeyCounts, count_keys
from midstream.plan.layout import key_column
from midstream.query.build import build_query
from midstream.query.query import Query
from midstream.query.stream import ColumnRef, Stream
from midstream.state.statistics import Statistics
from midstream.values import Micros

SECOND = 1_000_000
KINDS = ("uniform", "zipf", "correlated", "drifting")
QUERIES = 240
EPOCHS_IN_WINDOW = 10
WINDOWS = 3
SCHEMA = pa.schema(
    [("id", pa.int64()), ("k0", pa.int64()), ("k1", pa.int64()), ("ts", pa.timestamp("us", "UTC"))]
)


@dataclass(frozen=True)
class Drawn:
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
            streams, on, everywhere=Micros(self.window * SECOND), select=[f"{self.names[0]}.id"]
        )

    def rows(self, random: np.random.Generator, name: str, begin: float, seconds: float) -> pa.Table:
        """What a stream brings in some seconds."""
        place = self.names.index(name)
        count = int(random.poisson(self.rates[place] * seconds))
        times = np.sort(random.uniform(begin, begin + seconds, count))
        first = self._keys(random, times, self.domains[place])
        second = self._keys(random, times, self.domains[place])
        if self.kind == "correlated" and self.chain:
            # Half of the rows have a second key that follows from the first.
            second = np.where(random.random(count) < 0.5, first, second)
        micros = (times * SECOND).astype(np.int64).view("datetime64[us]")
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


def draw(seed: int) -> Drawn:
    """A query; the same for a seed."""
    random = np.random.default_rng(seed)
    count = int(random.integers(3, 6))
    window = int(random.integers(20, 60))
    # Joins of skewed keys are large; somebody must count them.
    fastest = 15 if KINDS[seed % len(KINDS)] == "zipf" else 60
    rates = tuple(float(r) for r in random.uniform(5, fastest, count))
    # So many matches of a row in the window of another stream, up to a few.
    matches = random.uniform(0.1, 3, count)
    domains = tuple(int(max(10, r * window / m)) for r, m in zip(rates, matches, strict=True))
    # Keys that move on must do so together, or soon nothing would join.
    if random.random() < 0.5 or KINDS[seed % len(KINDS)] in ("correlated", "drifting"):
        domains = (max(domains),) * count
    return Drawn(
        KINDS[seed % len(KINDS)],
        tuple("abcde"[:count]),
        bool(seed // len(KINDS) % 2),
        window,
        rates,
        domains,
        float(random.uniform(0.4, 1.0)),
        seed,
    )


def errors(drawn: Drawn) -> list[float]:
    """The q-error of every connected set of streams: how many times too large or too small."""
    query = drawn.query()
    random = np.random.default_rng(drawn.seed + 1)
    statistics = Statistics()
    step = drawn.window / EPOCHS_IN_WINDOW
    history: dict[str, list[pa.Table]] = {name: [] for name in drawn.names}
    for epoch in range(WINDOWS * EPOCHS_IN_WINDOW):
        arrived = {name: drawn.rows(random, name, epoch * step, step) for name in drawn.names}
        statistics = _advance(query, statistics, step, arrived)
        for name, table in arrived.items():
            history[name].append(table)
    estimator = Estimator(query, statistics)
    frames = {name: pl.from_arrow(pa.concat_tables(tables)) for name, tables in history.items()}
    found = []
    for size in range(2, len(drawn.names)):
        for chosen in combinations(drawn.names, size):
            if _connected(query, chosen):
                real = _real_rate(drawn, query, frames, chosen)
                thought = estimator.rate(chosen)
                found.append(max((thought + 1e-3) / (real + 1e-3), (real + 1e-3) / (thought + 1e-3)))
    return found


def _advance(
    query: Query, statistics: Statistics, seconds: float, arrived: dict[str, pa.Table]
) -> Statistics:
    """The statistics after an epoch; nothing is joined, they come of taking rows in."""
    known = samplings(query, statistics)
    keys: dict[str, KeyCounts] = {}
    for name, table in arrived.items():
        columns = {key_column(name, c.id): c.of(name) for c in query.classes if name in c.streams}
        by_class = {column: table.column(refs[0].path[0]) for column, refs in columns.items()}
        keys |= count_keys(query, name, (), pa.table(by_class), known)
    rows = {name: table.num_rows for name, table in arrived.items()}
    return advance(query, statistics, seconds, rows, rows, keys, None)


def _connected(query: Query, chosen: tuple[str, ...]) -> bool:
    reached = {chosen[0]}
    while True:
        near = {n for c in query.classes if c.streams & reached for n in chosen if n in c.streams} | reached
        if near == reached:
            return reached == set(chosen)
        reached = near


def _real_rate(drawn: Drawn, query: Query, frames: dict[str, Any], chosen: tuple[str, ...]) -> float:
    """Rows of the join whose newest component came in the last window, in a second."""
    end = WINDOWS * drawn.window
    joined: Any = None
    seen: list[str] = []
    waiting = list(chosen)
    while waiting:
        name = next(n for n in waiting if not seen or _keys_between(query, seen, n))
        waiting.remove(name)
        frame = frames[name].select(pl.col("k0", "k1", "ts").name.prefix(f"{name}_")).lazy()
        # Only the last two windows can be part of it.
        frame = frame.filter(pl.col(f"{name}_ts").dt.timestamp("us") >= (end - 2 * drawn.window) * SECOND)
        if joined is None:
            joined = frame
        else:
            pairs = _keys_between(query, seen, name)
            joined = joined.join(
                frame, left_on=[p[0] for p in pairs], right_on=[p[1] for p in pairs], coalesce=False
            )
            for other in seen:
                isolated = (pl.col(f"{other}_ts") - pl.col(f"{name}_ts")).abs()
                joined = joined.filter(isolated <= pl.duration(seconds=drawn.window))
        seen.append(name)
    newest = pl.max_horizontal(*(pl.col(f"{n}_ts").dt.timestamp("us") for n in chosen))
    rows = joined.filter(newest >= (end - drawn.window) * SECOND).select(pl.len()).collect().item()
    return float(rows) / drawn.window


def _keys_between(query: Query, seen: list[str], name: str) -> list[tuple[str, str]]:
    found = []
    for key_class in query.classes:
        mine = key_class.of(name)
        other = next((key_class.of(s)[0] for s in seen if key_class.of(s)), None)
        if mine and other is not None:
            found.append((f"{other.stream}_{other.path[0]}", f"{name}_{mine[0].path[0]}"))
    return found


def run(console: Console, queries: int = QUERIES) -> dict[str, Any]:
    """The q-errors of all queries, by kind of keys."""
    found: dict[str, list[float]] = {kind: [] for kind in KINDS}
    for seed in range(queries):
        drawn = draw(seed)
        found[drawn.kind] += errors(drawn)
    found["all"] = [error for kind in KINDS for error in found[kind]]
    table = Table(title=f"Estimated intermediate sizes, {queries} queries: q-error")
    for column in ("keys", "estimates", "median", "95 %", "worst"):
        table.add_column(column, justify="left" if column == "keys" else "right")
    for kind, each in found.items():
        figures = (np.median(each), np.quantile(each, 0.95), max(each))
        table.add_row(kind, f"{len(each):,}", *(f"{figure:.2f}" for figure in figures))
    console.print(table)
    return {
        kind: {"median": float(np.median(e)), "p95": float(np.quantile(e, 0.95))} for kind, e in found.items()
    }


if __name__ == "__main__":
    run(Console())
