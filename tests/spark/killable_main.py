"""A program that runs a query, may have it changed meanwhile, and may die; started by ``KillableQuery``.

Arguments: a folder with the input, and as JSON the ``Life`` of this driver.
"""

import sys
from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple
from unittest.mock import patch

from pyspark.sql import SparkSession

from midstream import Join
from midstream.spark.background_budget import BackgroundBudget
from midstream.spark.query import JoinStreamingQuery
from tests.spark.driver_course import DriverCourse, Life
from tests.spark.feed import Feed
from tests.spark.process_faults import failing_tasks
from tests.spark_session import USERS_FILE_MANAGER, make_session

SELECTED = ("a.id", "b.id", "c.id")
_NOTES_KEPT = "spark.sql.streaming.minBatchesToRetain"


class Definition(NamedTuple):
    """What differs between the definition of the query and the one that replaces it."""

    on: tuple[str, ...]
    window_seconds: int


_ON = ("a.k = b.k", "b.k2 = c.k2")
DEFINITIONS = {"old": Definition(_ON, 8), "new": Definition((*_ON, "a.id <> c.id"), 20)}


def join_of(spark: SparkSession, root: Path, definition: str) -> Join:
    """The join by the old definition or the new one."""
    join = Join(spark)
    for name in "abc":
        join = join.stream(name, Feed(spark, root / "in").df(name), time="t", lateness="5 seconds")
    on, seconds = DEFINITIONS[definition]
    return join.on(*on).within(f"{seconds} seconds").select(*SELECTED)


def start(
    spark: SparkSession,
    root: Path,
    options: Mapping[str, str | int] = MappingProxyType({}),
    definition: str = "old",
) -> JoinStreamingQuery:
    """Start the query over all available input."""
    writer = join_of(spark, root, definition).writeStream.format("parquet").option("path", f"{root}/out")
    writer = writer.options(**{"partitions": 2, "adapt": "off", **options})
    writer = writer.option("checkpointLocation", f"{root}/checkpoint").trigger(availableNow=True)
    # The input of each epoch is read from Spark's offsets, of which it keeps 100 otherwise.
    spark.conf.set(_NOTES_KEPT, "100000")
    try:
        return writer.start()
    finally:
        spark.conf.unset(_NOTES_KEPT)


def session(master: str, config: Mapping[str, str]) -> SparkSession:
    """A session of this process's own."""
    given = {
        # Most lives are too short for code that was generated to pay off.
        "spark.sql.codegen.wholeStage": "false",
        "spark.log.level": "OFF",
        "spark.executor.memory": "1g",
        **config,
    }
    return make_session(master, given)


def main(root: Path, life: Life) -> None:
    # At a crash point Spark is writing nothing.
    spark = session(life.master, {} if life.point else USERS_FILE_MANAGER)
    course = DriverCourse(life, new=lambda: join_of(spark, root, "new"))
    with failing_tasks(root / "struck", life.faults) if life.faults else nullcontext():
        course.run(lambda: start(spark, root, life.options, life.definition))
    executors = spark.sparkContext._jsc.sc().getExecutorMemoryStatus().size() - 1
    print("DONE", executors)
    spark.stop()


if __name__ == "__main__":
    # As much is computed in the background of each epoch, however busy the machine is.
    with patch.object(BackgroundBudget, "next", lambda _: 1):
        main(Path(sys.argv[1]), Life.from_json(sys.argv[2]))
