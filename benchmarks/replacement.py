"""Black boxes as in figure 22 of the paper on hybrid migration: results and work over time.

A query goes over to another plan by each of the three strategies, from the same point of the same streams.
Work is counted, so it is the same on any machine; what the formulas of the paper predict is set beside it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
from rich.console import Console
from rich.table import Table

from midstream.adapt.cost import work_in_units
from midstream.inline import InlineJoin
from midstream.migration.paper_models import (
    BlackBoxes,
    ghm_duration,
    gms_duration,
    gpt_cpu,
    gpt_duration,
)
from midstream.migration.strategies import BLACK_BOX_STRATEGIES
from midstream.protocol.settings import Settings
from midstream.query.build import build_query
from midstream.query.query import Query
from midstream.query.stream import ColumnRef, Stream
from midstream.values import Micros

NAMES = ("a", "b", "c", "d")
OLD, NEW = "((a b) c) d", "a (b (c d))"
EPOCH_MICROS = 1_000_000
SCHEMA = pa.schema([("id", pa.int64()), ("k", pa.int64()), ("ts", pa.timestamp("us", "UTC"))])


@dataclass(frozen=True)
class Setting:
    """A clique of four streams that are alike."""

    window: int = 60
    """In epochs, each of a second."""
    rows: int = 60
    """Of each stream in each epoch."""
    background: int = 2
    """How many epochs' worth of stored rows there is time for in the background, besides those that come."""
    measured: int = 90
    """Epochs from the start of the replacement on."""

    @property
    def warm_up(self) -> int:
        """Epochs before it."""
        return self.window + self.window // 2

    def query(self) -> Query:
        """The join."""
        streams = [Stream(n, SCHEMA, ColumnRef(n, ("ts",)), Micros(0)) for n in NAMES]
        on = [f"{a}.k = {b}.k" for a, b in pairwise(NAMES)]
        window = Micros(self.window * EPOCH_MICROS)
        return build_query(streams, on, default_window=window, select=[f"{n}.id" for n in NAMES])

    def epochs(self, first: int, count: int) -> Iterator[dict[str, pa.Table]]:
        """The rows of some epochs; each row matches about one row of every other stream in the window."""
        for number in range(first, first + count):
            random = np.random.default_rng(number)
            yield {name: self._rows(number, random) for name in NAMES}

    def _rows(self, number: int, random: np.random.Generator) -> pa.Table:
        begin, keys = number * EPOCH_MICROS, self.window * self.rows
        times = np.sort(random.integers(begin, begin + EPOCH_MICROS, self.rows))
        ids = np.arange(number * self.rows, (number + 1) * self.rows)
        columns = [ids, random.integers(0, keys, self.rows), times.view("datetime64[us]")]
        return pa.table(columns, schema=SCHEMA)


@dataclass
class Course:
    """What happened in each epoch from the start of a replacement on."""

    results: list[int] = field(default_factory=list)
    old_work: list[float] = field(default_factory=list)
    new_work: list[float] = field(default_factory=list)
    """In units of the cost model; that of the new plan alone once the old one is gone."""
    live: int = -1
    """After how many epochs the new plan takes part."""
    ended: int = -1
    """After how many the old one is gone."""

    @property
    def extra_work(self) -> float:
        """The work of the new plan while the old one runs too."""
        return sum(self.new_work[: self.ended])

    @property
    def work(self) -> float:
        """The work of both until then."""
        return sum(self.old_work) + self.extra_work


def run_replacement(setting: Setting, strategy: str) -> Course:
    """Go over to the other plan, and measure."""
    join = InlineJoin(setting.query(), OLD, settings=Settings(2, 8))
    for epoch in setting.epochs(0, setting.warm_up):
        join.run_epoch(epoch)
    join.migrate(NEW, strategy)
    course = Course()
    for number, epoch in enumerate(setting.epochs(setting.warm_up, setting.measured)):
        course.results.append(join.run_epoch(epoch, background_epochs=setting.background).num_rows)
        report, manifest = join.report, join.manifest
        own = work_in_units(report.work)
        successor = report.successor
        has_ended = manifest.replacement is None
        course.old_work.append(0.0 if has_ended else own)
        course.new_work.append(own if successor is None else work_in_units(successor.work))
        if course.live < 0 and (has_ended or _is_live(join)):
            course.live = number
        if course.ended < 0 and has_ended:
            course.ended = number
    return course


def _is_live(join: InlineJoin) -> bool:
    replacement = join.manifest.replacement
    return replacement is not None and replacement.live_since is not None


def model_of(setting: Setting) -> BlackBoxes:
    """The parameters of the formulas, from runs of each plan alone: a unit of work is a unit of time."""
    count = 4 * setting.rows
    return BlackBoxes(
        tau=setting.rows,
        tau_before=setting.rows,
        n=len(NAMES),
        w=setting.window,
        t_old=_steady_work(setting, OLD) / count,
        t_new=_steady_work(setting, NEW) / count,
        t_new_before=_filling_work(setting, NEW) / (count * setting.window),
    )


def model_of_filling(setting: Setting, model: BlackBoxes) -> BlackBoxes:
    """The same for a new plan that begins without rows, and finds fewer until its states are full."""
    join = InlineJoin(setting.query(), NEW, settings=Settings(2, 8))
    work = 0.0
    for epoch in setting.epochs(setting.warm_up, setting.window):
        join.run_epoch(epoch)
        work += work_in_units(join.report.work)
    return replace(model, t_new=work / (4 * setting.rows * setting.window))


def _steady_work(setting: Setting, plan: str) -> float:
    """The work of an epoch of a plan that has run for some time."""
    join, measured = InlineJoin(setting.query(), plan, settings=Settings(2, 8)), 10
    work = []
    for epoch in setting.epochs(0, setting.warm_up + measured):
        join.run_epoch(epoch)
        work.append(work_in_units(join.report.work))
    return sum(work[-measured:]) / measured


def _filling_work(setting: Setting, plan: str) -> float:
    """The work of a plan that begins with all rows of a window at once."""
    join = InlineJoin(setting.query(), plan, settings=Settings(2, 8))
    epochs = list(setting.epochs(0, setting.window))
    join.run_epoch({name: pa.concat_tables([epoch[name] for epoch in epochs]) for name in NAMES})
    return work_in_units(join.report.work)


def predicted_epochs(setting: Setting, model: BlackBoxes) -> dict[str, float]:
    """How long the formulas say that each strategy takes, in epochs.

    A machine that has time for some epochs of replayed rows besides those that come, has this capacity; the
    formulas are for one of capacity 1.
    """
    capacity = model.load_old + (1 + setting.background) * model.load_new
    scaled = BlackBoxes(
        tau=model.tau,
        tau_before=model.tau_before,
        n=model.n,
        w=model.w,
        t_old=model.t_old / capacity,
        t_new=model.t_new / capacity,
        t_new_before=model.t_new / capacity,
    )
    return {
        "generalized_moving_state": gms_duration(model) / capacity,
        "generalized_parallel_track": gpt_duration(model),
        "generalized_hybrid": ghm_duration(scaled),
    }


def run(console: Console) -> dict[str, Any]:
    """Print results and work over time, and what the formulas predict."""
    setting = Setting()
    courses = {strategy: run_replacement(setting, strategy) for strategy in BLACK_BOX_STRATEGIES}
    model = model_of(setting)
    table = Table(title="Results and work in units, per epoch, from the start of the replacement")
    table.add_column("epochs")
    for strategy in courses:
        table.add_column(f"{strategy.removeprefix('generalized_')}\nresults, old, new", justify="right")
    for begin in range(0, setting.measured, 10):
        cells = [f"{begin} to {begin + 9}"]
        for course in courses.values():
            parts = (course.results, course.old_work, course.new_work)
            cells.append(", ".join(f"{sum(part[begin : begin + 10]) / 10:,.0f}" for part in parts))
        table.add_row(*cells)
    console.print(table)
    predicted = predicted_epochs(setting, model)
    filling = model_of_filling(setting, model)
    summary = Table("strategy", "live after", "ended after", "work of the new plan, and of both", "predicted")
    for strategy, course in courses.items():
        summary.add_row(
            strategy,
            f"{course.live} epochs",
            f"{course.ended} epochs",
            f"{course.extra_work:,.0f}, {course.work:,.0f}",
            _prediction(strategy, model, filling, predicted[strategy]),
        )
    console.print(summary)
    return {strategy: vars(course) for strategy, course in courses.items()}


def _prediction(strategy: str, model: BlackBoxes, filling: BlackBoxes, epochs: float) -> str:
    if strategy == "generalized_moving_state":
        return f"{gms_duration(model):,.0f} units for stored rows"
    if strategy == "generalized_parallel_track":
        return f"{epochs:.0f} epochs, {gpt_cpu(filling):,.0f} units for both"
    return f"live after {epochs:.0f} epochs"
