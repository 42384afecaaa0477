"""The demo from start to end: generate streams, join them on Spark, check the results with DuckDB."""

from __future__ import annotations

import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from midstream.demo import data
from midstream.demo.check import Comparison, check_results
from midstream.demo.query import OTHER_PLAN, fulfilment
from midstream.demo.session import spark_session
from midstream.demo.show import Epoch, View
from midstream.errors import OptionError
from midstream.query.query import Query
from midstream.spark.option_readers import a_size
from midstream.spark.query import JoinStreamingQuery

_POLL_SECONDS = 0.1


@dataclass(frozen=True)
class Demo:
    """The parameters of the demo."""

    epochs: int
    rows: int
    """Input rows per epoch, over all streams, approximately."""
    seed: int
    master: str
    output: Path | None
    """A new or empty folder; None for a temporary one."""
    memory: str | None = None
    """A budget of active state in each engine partition, such as ``8m``; None for as much as it takes."""


@dataclass(frozen=True)
class DemoOutcome:
    """The outcome of the demo."""

    demo: Demo
    folder: Path
    """The folder with the streams, the results, the late rows, the checkpoint and Spark's own files."""
    epochs: tuple[Epoch, ...]
    notes: tuple[str, ...]
    """What has happened to the plan and to memory."""
    explanation: str
    comparison: Comparison
    seconds: dict[str, float]
    """How long each phase took."""


def run(demo: Demo, view: View) -> DemoOutcome:
    """Run the demo and show it."""
    if demo.memory is not None:
        a_size("memory", demo.memory)
    folder = _folder(demo.output)
    clock = _Clock()
    with view.running():
        view.doing(f"making up {demo.epochs} epochs of about {demo.rows:,} rows")
        data.write(data.generate(demo.epochs, demo.rows, demo.seed), folder / "streams")
        clock.lap("generate")
        query, explanation = _join(demo, folder, view, clock)
        view.doing("computing the same join with DuckDB")
        comparison = check_results(query, data.read(folder / "streams"), folder / "results")
        clock.lap("check")
    return DemoOutcome(
        demo, folder, tuple(view.epochs), tuple(view.notes), explanation, comparison, clock.laps
    )


def _join(demo: Demo, folder: Path, view: View, clock: _Clock) -> tuple[Query, str]:
    """Run the join to its end; the query, and the explanation of its run."""
    view.doing("starting Spark")
    with spark_session(demo.master, folder / "spark") as spark:
        join = fulfilment(spark, folder / "streams")
        clock.lap("start")
        view.doing("joining")
        writer = (
            join.writeStream.format("parquet")
            .option("path", str(folder / "results"))
            .option("checkpointLocation", str(folder / "checkpoint"))
            .option("lateRows", str(folder / "late"))
            # The demo changes the plan itself, half-way.
            .option("adapt", "off")
            .trigger(availableNow=True)
        )
        if demo.memory is not None:
            writer = writer.option("stateMemory", demo.memory)
        running = writer.start()
        try:
            _watch(running, view, demo.epochs // 2 if demo.memory is None else None)
        finally:
            running.stop()
        clock.lap("join")
        return join.query(), running.explanation()


def _watch(running: JoinStreamingQuery, view: View, half: int | None) -> None:
    """Show each epoch soon after it is done, until the query ends; half-way, change its plan.

    Without ``half`` the plan stays: while state is spilled, a plan with other fragments would have to wait.
    """
    active, migrated = True, False
    while active:
        time.sleep(_POLL_SECONDS)
        active = running.isActive
        for progress in running.recentProgress:
            view.epoch(progress)
        if active and half is not None and not migrated and len(view.epochs) >= half:
            running.migrate(OTHER_PLAN)
            migrated = True
    running.awaitTermination()


def _folder(output: Path | None) -> Path:
    if output is None:
        return Path(tempfile.mkdtemp(prefix="midstream-demo-"))
    if output.exists() and not (output.is_dir() and not any(output.iterdir())):
        raise OptionError(
            "the output must be a new or an empty folder", got=output, hint="name another, or remove it"
        )
    output.mkdir(parents=True, exist_ok=True)
    return output.absolute()


class _Clock:
    """Measures consecutive phases."""

    def __init__(self) -> None:
        self.laps: dict[str, float] = {}
        self._last = time.perf_counter()

    def lap(self, name: str) -> None:
        now = time.perf_counter()
        self.laps[name] = now - self._last
        self._last = now
