"""A program that runs a query and dies at a given crash point; started by ``KillableQuery``.

Arguments: a folder with the input, the Spark master, the crash point at which the driver dies (or ""), in
which phase of a migration (or ""), and as JSON the faults of tasks, what is requested, and the options of the
query.
"""

import json
import os
import signal
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from pyspark.sql import SparkSession

from midstream import Join
from midstream.migration.request import BackgroundChoice
from midstream.runtime.crash_points import crash_hook
from midstream.spark.micro_batch_handler import MicroBatchHandler
from midstream.spark.query import JoinStreamingQuery
from midstream.storage.intents import find_intent
from tests.spark.feed import Feed
from tests.spark.process_faults import Fault, failing_tasks
from tests.spark_session import make_session


class Change(NamedTuple):
    """A request for another plan, made in the middle of an epoch, so that the next one applies it."""

    epoch: int
    plan: str
    strategy: str | None
    background: BackgroundChoice = "auto"
    partitions: int | None = None
    """Another number of engine partitions that is requested with it."""


def phases_of(driver: MicroBatchHandler) -> set[str]:
    """The phases of a migration that the next epoch is in."""
    migration, runner = driver.manifest.migration, driver.runner
    intent = find_intent(runner.store, driver.manifest.epoch + 1) or runner.new_intent(0, 1)
    step = driver.coordinator.program(driver.manifest, intent).migration_step
    phases = {
        "begins": step is not None and step.begins and not step.ends,
        "ends": step is not None and step.ends,
        "goes on": migration is not None and step is not None and not step.ends,
        "half computed": migration is not None and bool(migration.rebuilding),
    }
    return {phase for phase, holds in phases.items() if holds}


def start(
    spark: SparkSession, root: Path, options: Mapping[str, str | int] = MappingProxyType({})
) -> JoinStreamingQuery:
    """Start the query over all available input."""
    join = Join(spark)
    for name in "abc":
        join = join.stream(name, Feed(spark, root / "in").df(name), time="t", lateness="5 seconds")
    join = join.on("a.k = b.k", "b.k2 = c.k2").within("8 seconds").select("a.id", "b.id", "c.id")
    writer = join.writeStream.format("parquet").option("path", f"{root}/out")
    writer = writer.options(**{"partitions": 2, "adapt": "off", **options})
    return writer.option("checkpointLocation", f"{root}/checkpoint").trigger(availableNow=True).start()


class Events:
    """Requests migrations and kills the driver; called at every crash point."""

    def __init__(self, crash_at: str, phase: str, migrations: Sequence[Change]) -> None:
        self.crash_at = crash_at
        self.phase = phase
        self.migrations = list(migrations)
        self.query: JoinStreamingQuery | None = None
        self.started = threading.Event()

    def __call__(self, point: str) -> None:
        if not self.phase and not self.migrations:
            return self._die_at(point)
        if threading.current_thread() is threading.main_thread():
            return None  # the query is starting, and finishes what its last run left unfinished
        # Epochs may begin before start() has returned the query.
        self.started.wait()
        assert self.query is not None
        driver = self.query._handler
        epoch = driver.manifest.epoch + 1
        for change in [c for c in self.migrations if point == "before the step" and c.epoch == epoch]:
            self.migrations.remove(change)
            self.query.migrate(change.plan, change.strategy, background=change.background)
            if change.partitions is not None:
                self.query.rescale(change.partitions)
            if self.phase == "asked":
                self._die_at(point)
        if self.phase in {"", *phases_of(driver)}:
            self._die_at(point)
        return None

    def _die_at(self, point: str) -> None:
        if point == self.crash_at:
            os.kill(os.getpid(), signal.SIGKILL)


def session(master: str) -> SparkSession:
    """A session of this process's own."""
    config = {
        # The input of each epoch is read from Spark's offsets, of which it keeps 100 otherwise.
        "spark.sql.streaming.minBatchesToRetain": "100000",
        # Most lives are too short for code that was generated to pay off.
        "spark.sql.codegen.wholeStage": "false",
        "spark.log.level": "OFF",
        "spark.executor.memory": "1g",
    }
    return make_session(master, config)


def main(
    root: Path, master: str, events: Events, faults: list[Fault], options: Mapping[str, str | int]
) -> None:
    spark = session(master)
    with crash_hook(events), failing_tasks(root / "struck", faults) if faults else nullcontext():
        events.query = start(spark, root, options)
        events.started.set()
        events.query.awaitTermination()
    executors = spark.sparkContext._jsc.sc().getExecutorMemoryStatus().size() - 1
    print("DONE", executors)
    spark.stop()


if __name__ == "__main__":
    _, argv_folder, argv_master, argv_point, argv_phase, argv_faults, argv_changes, argv_options = sys.argv
    argv_events = Events(argv_point, argv_phase, [Change(*change) for change in json.loads(argv_changes)])
    task_faults = [Fault(*fault) for fault in json.loads(argv_faults)]
    main(Path(argv_folder), argv_master, argv_events, task_faults, json.loads(argv_options))
