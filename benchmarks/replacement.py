"""Black boxes as in figure 22 of the paper on hybrid migration: output rate and CPU over time.

A query goes over to another plan by each of the three strategies, from the same point of the same streams.
Work is counted, so it is the same on any machine; what the formulas of the paper predict is set beside it.

When results come depends on how fast the machine is. So counted batches are put on the clock of one of a
given speed: a batch begins when its rows are there and the one before it is done, and takes as long as its
work. Where more than that is to be done, rows wait, and come out in a spike afterwards.
"""

from __future__ import annotations

import time
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
    BlackBoxModel,
    ghm_duration,
    gms_duration,
    gms_spike_length,
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
    load: float = 0.3
    """The share of its time that new rows take in the new plan, on the machine whose clock it is."""

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
    seconds: list[float] = field(default_factory=list)
    """The processor time."""
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
        begin = time.process_time()
        course.results.append(join.run_epoch(epoch, background_epochs=setting.background).num_rows)
        course.seconds.append(time.process_time() - begin)
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


def model_of(setting: Setting) -> BlackBoxModel:
    """The parameters of the formulas, from runs of each plan alone: a unit of work is a unit of time."""
    count = 4 * setting.rows
    return BlackBoxModel(
        tau=setting.rows,
        tau_before=setting.rows,
        n=len(NAMES),
        w=setting.window,
        t_old=_steady_work(setting, OLD) / count,
        t_new=_steady_work(setting, NEW) / count,
        t_new_before=_filling_work(setting, NEW) / (count * setting.window),
    )


def model_of_filling(setting: Setting, model: BlackBoxModel) -> BlackBoxModel:
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


def predicted_epochs(setting: Setting, model: BlackBoxModel) -> dict[str, float]:
    """How long the formulas say that each strategy takes, in epochs.

    A machine that has time for some epochs of replayed rows besides those that come, has this capacity; the
    formulas are for one of capacity 1.
    """
    capacity = model.load_old + (1 + setting.background) * model.load_new
    scaled = BlackBoxModel(
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


@dataclass(frozen=True)
class Clock:
    """A course on the clock of a machine; times are in epochs since the replacement began."""

    results: list[float]
    """Results that come out in each epoch's time."""
    work: list[float]
    """Units of work that are done in it."""
    replayed: float
    """Until when the machine does nothing but stored rows, and no result comes; 0 if it never does so."""
    caught_up: float
    """When rows no longer wait; 0 if they never do."""

    @property
    def spike(self) -> float:
        """How long results come that rows have waited for."""
        return self.caught_up - self.replayed


def on_the_clock(course: Course, capacity: float, *, stored: float) -> Clock:
    """The course on a machine that does so many units in the time of an epoch.

    Stored rows, so many units of them, come before the rows of the first epoch, which arrive meanwhile.
    """
    results, work = ([0.0] * len(course.results) for _ in range(2))
    replayed = free = stored / capacity
    caught_up = 0.0 if not stored else None
    _spread(work, 0.0, free, stored)
    for number, count in enumerate(course.results):
        units = course.old_work[number] + course.new_work[number] - (stored if number == 0 else 0.0)
        begin = max(free, number + 1)
        if caught_up is None and free <= number + 1:
            caught_up = free
        free = begin + units / capacity
        _spread(work, begin, free, units)
        _spread(results, begin, free, count)
    return Clock(results, work, replayed, free if caught_up is None else caught_up)


def _spread(amounts: list[float], begin: float, end: float, amount: float) -> None:
    """Add an amount to the epochs that a time from begin to end is in."""
    for number in range(int(begin), min(len(amounts), int(end) + 1)):
        share = (min(end, number + 1) - max(begin, number)) / max(end - begin, 1e-9)
        amounts[number] += amount * max(share, 0.0)


def capacity_of(setting: Setting, model: BlackBoxModel) -> float:
    """The units that the machine does in the time of an epoch, on whose clock results come."""
    return model.load_new / setting.load


def clocks_of(setting: Setting, model: BlackBoxModel, courses: dict[str, Course]) -> dict[str, Clock]:
    """The courses on the clock."""
    capacity = capacity_of(setting, model)
    clocks = {}
    for strategy, course in courses.items():
        at_once = strategy == "generalized_moving_state"
        stored = course.new_work[0] - model.load_new if at_once else 0.0
        clocks[strategy] = on_the_clock(course, capacity, stored=stored)
    return clocks


def predicted_spike(setting: Setting, model: BlackBoxModel) -> tuple[float, float]:
    """How long moving state lasts on that machine by the formulas, and the spike after it, in epochs."""
    capacity = capacity_of(setting, model)
    scaled = replace(
        model,
        t_old=model.t_old / capacity,
        t_new=model.t_new / capacity,
        t_new_before=model.t_new_before / capacity,
    )
    return gms_duration(scaled), gms_spike_length(scaled)


def run(console: Console) -> dict[str, Any]:
    """Print output rate and CPU over time, and what the formulas predict."""
    setting = Setting()
    courses = {strategy: run_replacement(setting, strategy) for strategy in BLACK_BOX_STRATEGIES}
    model = model_of(setting)
    clocks = clocks_of(setting, model, courses)
    title = "Results, units of work and ms of the processor in the time of an epoch"
    table = Table(title=f"{title}, on a machine that new rows keep busy for {setting.load:.0%} of the time")
    table.add_column("epochs")
    for strategy in courses:
        table.add_column(strategy.removeprefix("generalized_"), justify="right")
    for begin in (0, 1, 2, 5, *range(10, setting.measured, 10)):
        end = {0: 1, 1: 2, 2: 5, 5: 10}.get(begin, begin + 10)
        cells = [f"{begin} to {end - 1}"]
        for strategy, clock in clocks.items():
            parts = (clock.results, clock.work, [1000 * each for each in courses[strategy].seconds])
            means = (sum(part[begin:end]) / (end - begin) for part in parts)
            cells.append(", ".join(f"{mean:,.0f}" for mean in means))
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
    clock, (duration, spike) = clocks["generalized_moving_state"], predicted_spike(setting, model)
    console.print(
        f"On that machine, moving state gives no result for {clock.replayed:.1f} epochs, predicted "
        f"{duration:.1f}, and then more than usual for {clock.spike:.1f} epochs, predicted {spike:.1f}."
    )
    return {strategy: vars(courses[strategy]) | {"clock": vars(clocks[strategy])} for strategy in courses}


def _prediction(strategy: str, model: BlackBoxModel, filling: BlackBoxModel, epochs: float) -> str:
    if strategy == "generalized_moving_state":
        return f"{gms_duration(model):,.0f} units for stored rows"
    if strategy == "generalized_parallel_track":
        return f"{epochs:.0f} epochs, {gpt_cpu(filling):,.0f} units for both"
    return f"live after {epochs:.0f} epochs"
