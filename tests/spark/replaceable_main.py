"""A program that runs a query, has its definition replaced, and dies meanwhile; started by ``KillableQuery``.

Arguments: a folder with the input, the definition with which it is started, the crash point at which the
driver dies (or ""), and in which phase of the replacement.
"""

import os
import signal
import sys
import threading
from pathlib import Path
from unittest.mock import patch

from pyspark.sql import SparkSession

from midstream import Join
from midstream.engine.program import Program, ReplacementStep
from midstream.runtime.crash_points import crash_hook
from midstream.spark.background_budget import BackgroundBudget
from midstream.spark.query import JoinStreamingQuery
from tests.spark.feed import Feed
from tests.spark.killable_main import session

ASKED = 6
"""The epoch in which the new definition is asked for."""
STRATEGY = "generalized_hybrid"


def join(spark: SparkSession, root: Path, definition: str) -> Join:
    """The old definition or the new one."""
    join = Join(spark)
    for name in "abc":
        join = join.stream(name, Feed(spark, root / "in").df(name), time="t", lateness="5 seconds")
    join = join.on("a.k = b.k", "b.k2 = c.k2").select("a.id", "b.id", "c.id")
    if definition == "new":
        return join.on("a.id <> c.id").within("45 seconds")
    return join.within("25 seconds")


def phase_of(step: ReplacementStep | None, epoch: int) -> str:
    """The phase of a replacement that an epoch is in."""
    if step is None:
        return ""
    if not isinstance(step.program, Program):
        return "ends"
    live_since = step.replacement.live_since
    return "catches up" if live_since is None else "goes live" if live_since == epoch else "live"


class Death:
    """Asks for the new definition, and kills this process at some point; called at every point."""

    def __init__(self, root: Path, point: str, phase: str) -> None:
        self.root = root
        self.point = point
        self.phase = phase
        self.query: JoinStreamingQuery | None = None
        self.started = threading.Event()

    def __call__(self, point: str) -> None:
        if threading.current_thread() is threading.main_thread():
            return  # the query is starting
        self.started.wait()
        assert self.query is not None
        driver = self.query._handler
        is_committed = point.startswith("after") and point != "after the step" and "prepared" not in point
        epoch = driver.manifest.epoch + (not is_committed)
        if point == "before the step" and epoch == ASKED and not driver.manifest.replacements:
            self.query.replace(join(self.query._handler._session, self.root, "new"), STRATEGY)
        if point == self.point and phase_of(driver.runner.replacement_step, epoch) == self.phase:
            os.kill(os.getpid(), signal.SIGKILL)


def main(root: Path, definition: str, death: Death) -> None:
    spark = session("local[2]")
    # As much is replayed in each epoch, however busy the machine is.
    with patch.object(BackgroundBudget, "next", lambda _: 1), crash_hook(death):
        writer = join(spark, root, definition).writeStream.format("parquet").option("path", f"{root}/out")
        writer = writer.options(partitions=2, adapt="off").option("checkpointLocation", f"{root}/checkpoint")
        death.query = writer.trigger(availableNow=True).start()
        death.started.set()
        death.query.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    _, argv_folder, argv_definition, argv_point, argv_phase = sys.argv
    main(Path(argv_folder), argv_definition, Death(Path(argv_folder), argv_point, argv_phase))
