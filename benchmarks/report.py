"""The figures of a run as tables, with what they must be."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.workloads import WORKLOADS

Runs = Mapping[str, list[dict[str, Any]]]


def steady_epochs(run: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The epochs of the steady state: the second half of them."""
    epochs: list[dict[str, Any]] = run["epochs"]
    return epochs[len(epochs) // 2 :]


def rates(run: Mapping[str, Any]) -> list[float]:
    """Rows a second of each epoch in the steady state."""
    return [epoch["rows"] / epoch["ms"] * 1000 for epoch in steady_epochs(run)]


def rate(run: Mapping[str, Any]) -> float:
    """Rows a second in the steady state."""
    return statistics.median(rates(run))


def show(name: str, runs: Runs, console: Console) -> bool:
    """Print what was measured of a workload; False if contestants do not agree on the results."""
    agree = len({(run["rows"], run["digest"]) for each in runs.values() for run in each}) == 1
    table = Table(title=f"{name}: {WORKLOADS[name].about}")
    for column in ("", "rows/s, steady", "spread", "ms an epoch", "Midstream is", "results"):
        table.add_column(column, justify="right")
    ours = statistics.median(map(rate, runs["midstream"])) if "midstream" in runs else None
    for contestant, each in runs.items():
        middle = statistics.median(map(rate, each))
        all_rates = [each_rate for run in each for each_rate in rates(run)]
        table.add_row(
            contestant,
            f"{middle:,.0f}",
            f"{min(all_rates) / middle:.2f}-{max(all_rates) / middle:.2f}",
            f"{statistics.median(epoch['ms'] for epoch in steady_epochs(each[-1])):,.0f}",
            _ratio(ours, middle) if contestant != "midstream" else "",
            f"{each[0]['rows']:,}",
        )
    console.print(table, "All contestants agree." if agree else "[red]The results differ.[/red]")
    for run in runs.get("midstream", [])[-1:]:
        console.print(_memory(run))
        if name == "tiny":
            console.print(_fixed(run))
    return agree


def _ratio(ours: float | None, other: float) -> str:
    if ours is None:
        return ""
    return f"{ours / other:.1f} x as fast" if ours >= other else f"{other / ours:.1f} x slower"


def _memory(run: Mapping[str, Any]) -> str:
    allowed = 3 * run["live"] + (500 << 20)
    return (
        f"Memory beyond an idle session: {_megabytes(run['memory'])} of the {_megabytes(allowed)} that "
        f"3 x the live state and 500 MB allow. State on disk: {_megabytes(run['disk'])} for "
        f"{_megabytes(run['live at the end'])} live."
    )


def _fixed(run: Mapping[str, Any]) -> str:
    """What an epoch costs that has hardly any rows, and whether it costs more when the query is old."""
    epochs = run["epochs"]
    ours = [epoch["parts"]["total"] for epoch in epochs]
    trigger = statistics.median(epoch["ms"] - epoch["parts"]["total"] for epoch in epochs[20:])
    young, old = statistics.median(ours[40:60]), statistics.median(ours[490:510])
    return (
        f"An epoch takes {statistics.median(ours[20:]):.0f} ms, and Spark's trigger {trigger:.0f} ms more. "
        f"Around epoch 50 it takes {young:.0f} ms, around epoch 500 {old:.0f} ms."
    )


def _megabytes(count: int) -> str:
    return f"{count / 1e6:,.0f} MB"
