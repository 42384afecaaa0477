"""Whether adapting pays: streams that change in phases, joined with and without it, in counted work.

Three contestants have the same input, in this process: the initial plan kept throughout; ``adapt=auto``; and,
as a bound that cannot be reached, the best plan of each phase with switches that cost nothing, which is put
together from runs of fixed plans. Work is what the tasks count, in the unit of the cost model
(``adapt/cost.py``), and in comparisons of a nested loop, as the papers count. Neither depends on the machine.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from rich.console import Console
from rich.table import Table

from midstream.adapt.cost import work_in_units
from midstream.adapt.optimizer import best_plan
from midstream.inline import InlineJoin
from midstream.plan.default_plan import default_plan
from midstream.protocol.settings import Settings
from midstream.query.build import build_query
from midstream.query.query import Query
from midstream.query.stream import ColumnRef, Stream
from midstream.values import MICROS_PER_SECOND, Micros

EPOCHS_IN_WINDOW = 12
SCHEMA = pa.schema(
    [*((name, pa.int64()) for name in ("id", "k1", "k2", "k3")), ("ts", pa.timestamp("us", "UTC"))]
)


@dataclass(frozen=True)
class Drift:
    """Streams that change from phase to phase."""

    name: str
    on: tuple[str, ...]
    streams: str
    matches: float
    """Rows of each other stream's window that a row matches."""
    rare_streams: tuple[str, ...]
    """For each phase, the streams in which only one row in twenty has a key that others have."""
    window: int = 180
    """Seconds."""
    rate: float = 1.0
    """Rows per second of each stream."""
    phase_windows: tuple[int, ...] = (3, 8)
    """How many windows each phase lasts."""
    skewed: bool = False
    """Whether keys have a Zipf distribution; else they are uniform."""

    def query(self) -> Query:
        """The query; its default plan is the initial one."""
        streams = [Stream(n, SCHEMA, ColumnRef(n, ("ts",)), Micros(0)) for n in self.streams]
        default_window = Micros(self.window * MICROS_PER_SECOND)
        return build_query(
            streams, list(self.on), default_window=default_window, select=[f"{self.streams[0]}.id"]
        )

    def epochs(self) -> list[list[dict[str, pa.Table]]]:
        """The input of each phase."""
        random = np.random.default_rng(11)
        seconds = self.window / EPOCHS_IN_WINDOW
        phases, begin = [], 0.0
        for rare, windows in zip(self.rare_streams, self.phase_windows, strict=True):
            phase = []
            for _ in range(windows * EPOCHS_IN_WINDOW):
                phase.append({n: self._rows(random, begin, seconds, rare=n in rare) for n in self.streams})
                begin += seconds
            phases.append(phase)
        return phases

    def _rows(self, random: np.random.Generator, begin: float, seconds: float, *, rare: bool) -> pa.Table:
        count = int(random.poisson(self.rate * seconds))
        times = np.sort(random.uniform(begin, begin + seconds, count) * MICROS_PER_SECOND).astype(np.int64)
        keys = [self._keys(random, count, rare=rare) for _ in range(3)]
        ids = np.arange(count) + (int(begin) << 20)
        return pa.table([ids, *keys, times.view("datetime64[us]")], schema=SCHEMA)

    def _keys(self, random: np.random.Generator, count: int, *, rare: bool) -> npt.NDArray[np.int64]:
        domain = max(2, round(self.rate * self.window / self.matches))
        if self.skewed:
            shares = np.cumsum(1 / np.arange(1, domain + 1) ** 0.8)
            keys = np.searchsorted(shares, random.uniform(0, shares[-1], count))
        else:
            keys = random.integers(0, domain, count)
        if rare:
            unique = random.integers(1 << 40, 1 << 60, count)
            keys = np.where(random.random(count) < 0.05, keys, unique)
        return keys


def clique(streams: str) -> tuple[str, ...]:
    """All streams joined by one key."""
    return tuple(f"{a}.k1 = {b}.k1" for a, b in pairwise(streams))


CHAIN = ("A.k1 = B.k1", "B.k2 = C.k2", "C.k3 = D.k3", "D.k1 = E.k1")
STAR = ("A.k1 = B.k1", "A.k2 = C.k2", "A.k3 = D.k3")
DRIFTS = (
    Drift("six-way clique", clique("ABCDEF"), "ABCDEF", 9, ("A", "F")),
    Drift("chain over several keys", CHAIN, "ABCDE", 6, ("A", "E")),
    Drift("star", STAR, "ABCD", 9, ("B", "D")),
    Drift("skewed clique", clique("ABCDE"), "ABCDE", 6, ("A", "E"), skewed=True),
    Drift("stationary clique", clique("ABCDE"), "ABCDE", 6, ("A",), phase_windows=(25,)),
)


@dataclass(frozen=True, kw_only=True)
class RunRecord:
    """The work of a run, phase by phase."""

    units: list[float]
    comparisons: list[int]
    results: int
    plans: list[str]
    """The plans that ran, in their order."""


def run_plan(drift: Drift, plan: str | None, *, adapt: bool) -> RunRecord:
    """Run a query from a plan, the default one if none is given."""
    query = InlineJoin(drift.query(), plan, settings=Settings(1, 1, adapt=adapt))
    units, comparisons, results = [], [], 0
    plans = [query.manifest.plan]
    for phase in drift.epochs():
        units.append(0.0)
        comparisons.append(0)
        for epoch in phase:
            results += query.run_epoch(epoch, background_epochs=1).num_rows
            units[-1] += work_in_units(query.report.work)
            comparisons[-1] += query.report.work.comparisons
            if query.manifest.plan != plans[-1]:
                plans.append(query.manifest.plan)
    return RunRecord(units=units, comparisons=comparisons, results=results, plans=plans)


def best_of_phases(drift: Drift) -> list[str]:
    """The best plan at the end of each phase, by its statistics."""
    query = InlineJoin(drift.query(), settings=Settings(1, 1))
    plans = []
    for phase in drift.epochs():
        for epoch in phase:
            query.run_epoch(epoch)
        context = query.coordinator.decision_context(query.manifest)
        plans.append(str(best_plan(context.estimator, 1).plan))
    return plans


def measure(drift: Drift) -> dict[str, Any]:
    """All contestants on one input."""
    kept = run_plan(drift, None, adapt=False)
    adapted = run_plan(drift, None, adapt=True)
    candidates = dict.fromkeys([*best_of_phases(drift), *adapted.plans, str(default_plan(drift.query()))])
    fixed = {plan: run_plan(drift, plan, adapt=False) for plan in candidates}
    phases = range(len(drift.phase_windows))
    free_units = sum(min(record.units[i] for record in fixed.values()) for i in phases)
    free_comparisons = sum(min(record.comparisons[i] for record in fixed.values()) for i in phases)
    if {record.results for record in (kept, adapted, *fixed.values())} != {kept.results}:
        raise SystemExit(f"{drift.name}: the contestants differ in their results")
    return {
        "kept": sum(kept.units),
        "auto": sum(adapted.units),
        "free": free_units,
        "kept comparisons": sum(kept.comparisons),
        "auto comparisons": sum(adapted.comparisons),
        "free comparisons": free_comparisons,
        "plans": adapted.plans,
    }


def run(console: Console) -> dict[str, Any]:
    """All workloads, as a table."""
    table = Table(title="Adapting, counted: millions of units (and of comparisons)")
    columns = (
        "",
        "initial plan kept",
        "adapt=auto",
        "free switches",
        "kept / auto",
        "auto / free",
        "changes",
    )
    for column in columns:
        table.add_column(column, justify="right" if column else "left")
    figures: dict[str, Any] = {}
    for drift in DRIFTS:
        measured = figures[drift.name] = measure(drift)
        cells = [_amount(measured, name) for name in ("kept", "auto", "free")]
        cells += [_ratio(measured, "kept", "auto"), _ratio(measured, "auto", "free")]
        table.add_row(drift.name, *cells, str(len(measured["plans"]) - 1))
    console.print(table)
    return figures


def _amount(measured: Mapping[str, float], name: str) -> str:
    return f"{measured[name] / 1e6:,.1f} ({measured[f'{name} comparisons'] / 1e6:,.0f})"


def _ratio(measured: Mapping[str, float], a: str, b: str) -> str:
    comparisons = measured[f"{a} comparisons"] / measured[f"{b} comparisons"]
    return f"{measured[a] / measured[b]:.2f} x ({comparisons:.2f} x)"


if __name__ == "__main__":
    run(Console())
