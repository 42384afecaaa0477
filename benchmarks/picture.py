"""The figures of a run as pictures: who is how fast, and where the time of an epoch goes.

``python -m benchmarks.picture FIGURES.json FOLDER`` draws what ``python -m benchmarks --json`` has written.
"""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np

mpl.use("svg")
import matplotlib.pyplot as plt
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from benchmarks.report import rate, steady_epochs

Figures = Mapping[str, Mapping[str, list[dict[str, Any]]]]

_COLOURS = {"midstream": "#1b6ca8", "spark": "#e07b39", "polars": "#9aa5b1"}
_NAMES = {"midstream": "Midstream", "spark": "Spark's own joins", "polars": "Polars, one batch"}
# What each part of an epoch is called, in the order in which it happens.
_PARTS = {
    "trigger": "Spark's trigger",
    "encode": "read, encode, shuffle",
    "task receive": "receive",
    "task open": "open slices",
    "task join": "join",
    "task state": "write slices",
    "task stage": "write results",
    "commit": "commit and publish",
}


def draw_rates(figures: Figures, path: Path) -> None:
    """Rows a second in the steady state, for each workload and contestant."""
    shown = {name: runs for name, runs in figures.items() if name != "tiny"}
    figure, axes = plt.subplots(figsize=(8, 0.9 + 0.75 * len(shown)), layout="constrained")
    for line, (_workload, runs) in enumerate(reversed(shown.items())):
        for place, contestant in enumerate(c for c in _COLOURS if c in runs):
            value = statistics.median(map(rate, runs[contestant]))
            y = line + 0.27 * (1 - place)
            axes.barh(y, value, 0.25, color=_COLOURS[contestant])
            axes.text(value * 1.07, y, f"{value:,.0f}", va="center", fontsize=8)
    axes.set_yticks(range(len(shown)), list(reversed(shown)))
    axes.set_xscale("log")
    axes.set_xlim(3_000, 50_000_000)
    axes.set_xlabel("rows a second, steady state, 2 cores")
    handles = [Patch(color=colour) for colour in _COLOURS.values()]
    axes.legend(handles, list(_NAMES.values()), ncols=3, loc="upper center", bbox_to_anchor=(0.5, 1.14))
    axes.spines[["top", "right"]].set_visible(False)
    _save(figure, path)


def draw_profile(figures: Figures, path: Path) -> None:
    """Where the time of a steady epoch goes, for each workload."""
    shown = {name: runs["midstream"][-1] for name, runs in figures.items() if "midstream" in runs}
    figure, axes = plt.subplots(figsize=(8, 1.2 + 0.5 * len(shown)), layout="constrained")
    colours = plt.get_cmap("tab20")(range(len(_PARTS)))
    for line, (_workload, run) in enumerate(reversed(shown.items())):
        parts = profile(run)
        start = 0.0
        for (part, millis), colour in zip(parts.items(), colours, strict=True):
            axes.barh(line, millis, 0.6, left=start, color=colour, label=_PARTS[part] if line == 0 else None)
            start += millis
    axes.set_yticks(range(len(shown)), list(reversed(shown)))
    axes.set_xlabel("milliseconds of an epoch, median of the steady state")
    axes.legend(ncols=4, loc="upper center", bbox_to_anchor=(0.5, 1.3), fontsize=8)
    axes.spines[["top", "right"]].set_visible(False)
    _save(figure, path)


def draw_migration(costs: Mapping[str, Mapping[str, Any]], path: Path) -> None:
    """Results, work and state of each strategy, second by second after a migration has begun."""
    parts = {
        "results": "results a second",
        "comparisons": "comparisons a second",
        "rows": "rows of state, results that wait included",
    }
    figure, axes = plt.subplots(len(parts), figsize=(8, 7.5), layout="constrained", sharex=True)
    colours = ("#9aa5b1", "#e07b39", "#1b6ca8", "#2e9e6b")
    for axis, (part, title) in zip(axes, parts.items(), strict=True):
        for (name, cost), colour in zip(costs.items(), colours, strict=True):
            # Arrivals are random: ten seconds together show the course of things.
            smooth = np.convolve(cost[part], np.ones(10) / 10, mode="valid")
            axis.plot(range(9, 9 + len(smooth)), smooth, color=colour, label=name, linewidth=1.5)
        axis.set_title(title, loc="left", fontsize=9)
        axis.set_yscale("symlog", linthresh=100)
        axis.spines[["top", "right"]].set_visible(False)
    axes[-1].set_xlabel("seconds since the migration began, of a window of 180; means of ten")
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside upper center", ncols=4, fontsize=8)
    _save(figure, path)


def draw_replacement(courses: Mapping[str, Mapping[str, Any]], path: Path) -> None:
    """Output rate and CPU of each black-box strategy, epoch by epoch after a replacement has begun."""
    parts = {"results": "results in the time of an epoch", "work": "units of work in the time of an epoch"}
    figure, axes = plt.subplots(len(parts), figsize=(8, 5.5), layout="constrained", sharex=True)
    colours = ("#1b6ca8", "#e07b39", "#2e9e6b")
    for axis, (part, title) in zip(axes, parts.items(), strict=True):
        for (name, course), colour in zip(courses.items(), colours, strict=True):
            amounts = course["clock"][part]
            axis.plot(range(len(amounts)), amounts, color=colour, label=name, linewidth=1.5)
        axis.set_title(title, loc="left", fontsize=9)
        axis.set_ylim(bottom=0)
        axis.spines[["top", "right"]].set_visible(False)
    axes[-1].set_xlabel("epochs since the replacement began, of a window of 60")
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside upper center", ncols=3, fontsize=8)
    _save(figure, path)


def _save(figure: Figure, path: Path) -> None:
    """Write a picture without what Matplotlib adds about its making, such as the time and its own version."""
    figure.savefig(path, metadata=dict.fromkeys(("Creator", "Date", "Format", "Type")))


def profile(run: Mapping[str, Any]) -> dict[str, float]:
    """The parts of a steady epoch in milliseconds; of tasks that run side by side the longest counts."""
    epochs = steady_epochs(run)
    middle = {
        name: statistics.median(epoch["parts"].get(name, 0.0) for epoch in epochs)
        for name in ("total", "step", "commit", "publish", "clean", *(p for p in _PARTS if " " in p))
    }
    tasks = {name: value for name, value in middle.items() if name.startswith("task ")}
    found = {
        "trigger": statistics.median(epoch["ms"] - epoch["parts"]["total"] for epoch in epochs),
        "encode": middle["step"] - sum(tasks.values()),
        **tasks,
        "commit": middle["commit"] + middle["publish"] + middle["clean"],
    }
    return {part: max(found[part], 0.0) for part in _PARTS}


if __name__ == "__main__":
    measured = json.loads(Path(sys.argv[1]).read_text())
    draw_rates(measured, Path(sys.argv[2]) / "performance.svg")
    draw_profile(measured, Path(sys.argv[2]) / "profile.svg")
