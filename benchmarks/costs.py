"""Whether costs rank plans as their time does: the predicted cost of every plan, and what it takes.

Four streams in a clique, a chain, a star and a skewed clique; two of them have few rows with keys that others
have, so that plans differ. In the skewed clique all but one stream have frequent keys: if all had, nearly all
of the time would be for results, which is the same under every plan.

A query runs the plan as it is written, learns what work costs, and predicts from its statistics what each
plan without cross products would cost. Then each plan is run, in turns and several times. Its time is that of
the processor in the steps, for each epoch the shortest of all rounds. In this process there are no stages,
and what stored bytes cost is not seen in an epoch: both are left out.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from msgspec.structs import replace
from rich.console import Console
from rich.table import Table

from benchmarks.estimates import is_connected
from midstream.adapt.cost import CostModel
from midstream.adapt.estimate import Estimator
from midstream.adapt.plan_cost import cost_of
from midstream.inline import InlineJoin
from midstream.plan.build_layout import build_layout
from midstream.plan.tree import Plan, all_plans
from midstream.protocol.settings import Settings
from midstream.query.build import build_query
from midstream.query.query import Query
from midstream.query.stream import ColumnRef, Stream
from midstream.state.costs import DEFAULT_WEIGHTS, Cost, CostWeights
from midstream.state.statistics import Statistics
from midstream.values import MICROS_PER_SECOND, Micros

NAMES = "ABCD"
SHAPES: dict[str, tuple[str, ...]] = {
    "clique": ("A.k1 = B.k1", "B.k1 = C.k1", "C.k1 = D.k1"),
    "chain": ("A.k1 = B.k1", "B.k2 = C.k2", "C.k3 = D.k3"),
    "star": ("A.k1 = B.k1", "A.k2 = C.k2", "A.k3 = D.k3"),
    "skewed clique": ("A.k1 = B.k1", "B.k1 = C.k1", "C.k1 = D.k1"),
}
ROWS = {"A": 9000, "B": 7500, "C": 6000, "D": 4500}
"""Rows of a stream in an epoch: so many that what each costs is most of the time, not the calls."""
COMMON = {"A": 1.0, "B": 1.0, "C": 0.4, "D": 0.08}
"""The share of a stream's rows whose keys others have."""
EPOCHS_IN_WINDOW = 4
EPOCH_SECONDS = 2.5
MATCHES = 3
"""Rows of another stream's window that a row with such a key matches, about."""
SKEW = 0.5
WARM_UP, MEASURED, LEARNED = 4, 4, 24
"""Epochs: in which states fill, that are measured, and from which costs are learned."""
ROUNDS = 3
SCHEMA = pa.schema(
    [*((name, pa.int64()) for name in ("id", "k1", "k2", "k3")), ("ts", pa.timestamp("us", "UTC"))]
)
Epoch = dict[str, pa.Table]


def query_of(shape: str) -> Query:
    """The query of a shape."""
    streams = [Stream(n, SCHEMA, ColumnRef(n, ("ts",)), Micros(0)) for n in NAMES]
    window = Micros(round(EPOCHS_IN_WINDOW * EPOCH_SECONDS * MICROS_PER_SECOND))
    return build_query(streams, list(SHAPES[shape]), default_window=window, select=["A.id"])


def epochs_of(shape: str, count: int) -> list[Epoch]:
    """The input."""
    random = np.random.default_rng(5)
    skewed = shape.startswith("skewed")
    return [
        {n: _rows(random, n, number * EPOCH_SECONDS, skewed=skewed and n != "D") for n in NAMES}
        for number in range(count)
    ]


def _rows(random: np.random.Generator, name: str, begin: float, *, skewed: bool) -> pa.Table:
    count = ROWS[name]
    times = np.sort(random.uniform(begin, begin + EPOCH_SECONDS, count) * MICROS_PER_SECOND)
    keys = [_keys(random, count, COMMON[name], skewed=skewed) for _ in range(3)]
    columns = [np.arange(count), *keys, times.astype(np.int64).view("datetime64[us]")]
    return pa.table(columns, schema=SCHEMA)


def _keys(random: np.random.Generator, count: int, common: float, *, skewed: bool) -> npt.NDArray[np.int64]:
    domain = ROWS["C"] * EPOCHS_IN_WINDOW // MATCHES
    keys = random.integers(0, domain, count)
    if skewed:
        shares = np.cumsum(np.arange(1, 4 * domain + 1) ** -SKEW)
        keys = np.searchsorted(shares, random.uniform(0, shares[-1], count))
    return np.where(random.random(count) < common, keys, random.integers(1 << 40, 1 << 60, count))


def rank_correlation(x: Sequence[float], y: Sequence[float]) -> float:
    """Spearman's; equal values do not occur."""
    one, other = (np.argsort(np.argsort(values)).astype(np.float64) for values in (x, y))
    return float(np.corrcoef(one, other)[0, 1])


def statistics_of(query: Query, epochs: Sequence[Epoch]) -> Statistics:
    """What a query knows that runs the plan as it is written, and has learned what work costs."""
    join = InlineJoin(query, settings=Settings(1, 1, adapt=False), clock=time.process_time)
    for epoch in epochs:
        join.run_epoch(epoch)
    # What the running plan produced would correct the estimates of its own joins alone.
    return replace(join.manifest.statistics, produced={})


def times_of(query: Query, plan: Plan, epochs: Sequence[Epoch]) -> list[float]:
    """The time of the processor that each measured epoch takes."""
    join = InlineJoin(query, plan, settings=Settings(1, 1, adapt=False), clock=time.process_time)
    seconds = []
    for epoch in epochs:
        join.run_epoch(epoch)
        seconds.append(sum(join.report.cpu_seconds.values()))
    return seconds[WARM_UP:]


def measure(shape: str) -> dict[str, Any]:
    """Predicted and measured costs of all plans."""
    query = query_of(shape)
    plans = [
        p for p in all_plans(NAMES) if all(is_connected(query, tuple(node.streams)) for node in p.nodes())
    ]
    statistics = statistics_of(query, epochs_of(shape, WARM_UP + LEARNED))
    estimator = Estimator(query, statistics)
    costs = [cost_of(build_layout(query, plan), estimator, 1) for plan in plans]
    epochs = epochs_of(shape, WARM_UP + MEASURED)
    rounds = [[times_of(query, plan, epochs) for plan in plans] for _ in range(ROUNDS)]
    seconds = np.min(rounds, axis=0).sum(axis=1)
    first, last = (np.sum(rounds[i], axis=1) for i in (0, -1))
    learned = CostModel(estimator).weights
    by_default, by_learned = (_units(costs, weights) for weights in (DEFAULT_WEIGHTS, learned))
    return {
        "plans": len(plans),
        "slowest / fastest": float(seconds.max() / seconds.min()),
        "default": rank_correlation(by_default, list(seconds)),
        "learned": rank_correlation(by_learned, list(seconds)),
        "rounds": rank_correlation(list(first), list(last)),
        "chosen": float(seconds[int(np.argmin(by_learned))] / seconds.min()),
        "weights": learned,
    }


def _units(costs: Sequence[Cost], weights: CostWeights) -> list[float]:
    return [replace(cost, stages=0.0, stored_bytes=0.0).units(weights) for cost in costs]


def run(console: Console) -> dict[str, Any]:
    """All shapes, as a table."""
    table = Table(title="Predicted cost and measured time of all plans: rank correlation")
    columns = (
        "",
        "plans",
        "slowest / fastest",
        "default",
        "learned",
        "rounds",
        "chosen / fastest",
        "weights",
    )
    for column in columns:
        table.add_column(column, justify="right" if column else "left")
    figures: dict[str, Any] = {}
    for shape in SHAPES:
        measured = figures[shape] = measure(shape)
        table.add_row(shape, str(measured["plans"]), *_cells(measured))
    console.print(table)
    return figures


def _cells(measured: Mapping[str, Any]) -> list[str]:
    weights = measured["weights"]
    kinds = ("probes", "candidates", "intermediate_rows", "inserted_rows", "sent_rows")
    figures = [
        f"{measured[name]:.2f}" for name in ("slowest / fastest", "default", "learned", "rounds", "chosen")
    ]
    return [*figures, " ".join(f"{getattr(weights, kind):.1f}" for kind in kinds)]


if __name__ == "__main__":
    run(Console(width=140))
