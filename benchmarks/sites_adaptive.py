"""Figures 4 and 5 and table 3 of the paper on sites: adapting to one rate that switches every two seconds."""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.sites_network import EPOCH_SECONDS, VirtualSites
from benchmarks.sites_plans import paper_model

SECONDS = 8.0
FIRST_CHANGE, PERIOD = 1.5, 2.0
PERIODS = (2.0, 4.0, 8.0)
LOW, HIGH, OTHERS = 50.0, 200.0, 100.0
MEASURED_EPOCHS = 2
"""The paper measures every 200 ms."""
WAYS = ("fixed", "central", "distributed")


def rate_at(period: float, stream: str, time: float) -> float:
    """S2 switches between 50 and 200 rows a second; all others have 100."""
    if stream != "S2":
        return OTHERS
    return LOW if int((time - FIRST_CHANGE + 1e-9) // period) % 2 or time < FIRST_CHANGE - 1e-9 else HIGH


def run_way(count: int, way: str, period: float = PERIOD, seconds: float = SECONDS) -> VirtualSites:
    """One run of so many sites."""
    coordinator = "N1" if way == "central" else None
    rates = partial(rate_at, period)
    sites = VirtualSites(paper_model(count), rates, adapts=way != "fixed", coordinator=coordinator)
    return sites.run(seconds)


EXECUTION = ("rows", "computing")
ADAPTING = ("modification", "windows", "synchronisation")


def _spent(sites: VirtualSites, begin: float, end: float, kinds: tuple[str, ...] = EXECUTION) -> float:
    epochs = range(round(begin / EPOCH_SECONDS), round(end / EPOCH_SECONDS))
    return sum(sites.cost(epoch).seconds[kind] for epoch in epochs for kind in kinds)


def _changes() -> list[tuple[str, float]]:
    times = [FIRST_CHANGE + PERIOD * i for i in range(int((SECONDS - FIRST_CHANGE) / PERIOD))]
    return [("up" if i % 2 == 0 else "down", time) for i, time in enumerate(times)]


def show_figure_4(console: Console, count: int, runs: dict[str, VirtualSites]) -> dict[str, Any]:
    """Cost per 200 ms, and its mean in the second half of each phase, when the change is over."""
    table = Table(title=f"Figure 4, {count} sites: cost (ms) per 200 ms, second half of each phase")
    table.add_column("from ... s")
    for way in (*WAYS, "adaptive / fixed"):
        table.add_column(way, justify="right")
    found: dict[str, Any] = {}
    for name, begin in [("low", 0.0), *((f"{way}", time) for way, time in _changes())]:
        end = FIRST_CHANGE if begin == 0 else begin + PERIOD
        middle = (begin + end) / 2
        intervals = (end - middle) / (MEASURED_EPOCHS * EPOCH_SECONDS)
        costs = [1000 * _spent(runs[way], middle, end) / intervals for way in WAYS]
        found[f"{name} {begin}"] = costs
        table.add_row(
            f"{middle:.1f} ({name})",
            *(f"{c:.0f}" for c in costs),
            f"{costs[1] / costs[0]:.2f}, {costs[2] / costs[0]:.2f}",
        )
    for name, kinds in {"all of it": EXECUTION, "with the changes": EXECUTION + ADAPTING}.items():
        totals = [_spent(runs[way], 0.0, SECONDS, kinds) for way in WAYS]
        found[name] = totals
        shown = [f"{total:.1f} s" for total in totals]
        table.add_row(name, *shown, _ratios(totals))
    console.print(table)
    for begin in (FIRST_CHANGE, FIRST_CHANGE + PERIOD):
        for way in WAYS:
            step = MEASURED_EPOCHS * EPOCH_SECONDS
            curve = [1000 * _spent(runs[way], begin + i * step, begin + (i + 1) * step) for i in range(-1, 6)]
            console.print(f"  from {begin - step:.1f} s, {way}: {' '.join(f'{c:.0f}' for c in curve)}")
    console.print(f"  results: {', '.join(f'{runs[way].results:,}' for way in WAYS)}")
    return found


def _ratios(costs: list[float]) -> str:
    return f"{costs[1] / costs[0]:.2f}, {costs[2] / costs[0]:.2f}"


def show_table_3(console: Console, count: int, runs: dict[str, VirtualSites]) -> dict[str, Any]:
    """Messages of each change, and figure 5: what they cost."""
    table = Table(title=f"Table 3 and figure 5, {count} sites: messages of a change, and their cost in ms")
    for column in ("", "rate", "modification", "migration", "of it sync", "cost of both", "2n(n-1)"):
        table.add_column(column, justify="right")
    found: dict[str, Any] = {}
    for direction, time in _changes():
        for way in ("central", "distributed"):
            begin, messages, cost = round(time / EPOCH_SECONDS), Counter[str](), 0.0
            for epoch in range(begin, begin + round(PERIOD / EPOCH_SECONDS)):
                messages += runs[way].cost(epoch).messages
                cost += sum(runs[way].cost(epoch).seconds[kind] for kind in ADAPTING)
            migration = messages["windows"] + messages["synchronisation"]
            row = (messages["modification"], migration, messages["synchronisation"])
            found[f"{way} {direction} {time}"] = {**messages, "ms": 1000 * cost}
            shown = (f"{1000 * cost:.0f}", str(2 * count * (count - 1)))
            table.add_row(way, direction, *map(str, row), *shown)
    console.print(table)
    return found


def show_periods(console: Console, count: int) -> dict[float, list[float]]:
    """What adapting saves, with what the changes cost, if the rate changes less often."""
    found = {}
    for period in PERIODS:
        seconds = FIRST_CHANGE + 2 * period
        runs = {way: run_way(count, way, period, seconds) for way in WAYS}
        found[period] = [_spent(runs[way], 0.0, seconds, EXECUTION + ADAPTING) for way in WAYS]
    shown = ", ".join(f"every {period:g} s {_ratios(totals)}" for period, totals in found.items())
    console.print(f"{count} sites, adaptive / fixed with the changes, if the rate changes {shown}")
    return found


def run(console: Console) -> dict[str, Any]:
    """Four and eight sites."""
    found: dict[str, Any] = {}
    for count in (4, 8):
        runs = {way: run_way(count, way) for way in WAYS}
        assert len({sites.results for sites in runs.values()}) == 1, "the results differ"
        found[f"figure 4, {count} sites"] = show_figure_4(console, count, runs)
        found[f"table 3, {count} sites"] = show_table_3(console, count, runs)
        found[f"periods, {count} sites"] = show_periods(console, count)
    return found
