"""A program that runs a query and pauses itself and its JVM; started by ``KillableQuery``.

Arguments: a folder with the input, and as JSON where it pauses. It exits with ``FENCED`` if it finds that
another has taken over.
"""

import json
import os
import signal
import sys
from collections.abc import Callable
from contextlib import ExitStack
from functools import wraps
from importlib import import_module
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

from midstream import FencedError
from midstream.runtime.crash_points import crash_hook
from tests.spark.killable_main import session, start
from tests.spark.process_faults import IN_DRIVERS, IN_TASKS, Fault, failing_tasks
from tests.spark_session import USERS_FILE_MANAGER

FENCED = 3

# Points at which a crash is like one elsewhere, but at which a pause makes a difference.
BEFORE = {
    "before the checkpoint is opened": ("midstream.spark.resume", "open_manifest"),
    "before the query recovers": ("midstream.runtime.epoch_runner", "EpochRunner.recover"),
    "before Spark starts": ("midstream.spark.start_query", "_start_spark"),
    "before Spark's batch is looked at": ("midstream.spark.micro_batch_handler", "MicroBatchHandler._epoch"),
    "before the intent is written": ("midstream.runtime.epoch_runner", "write_or_read_intent"),
    "before results are renamed": ("midstream.storage.output_table", "OutputTable.publish"),
    "before the old is swept": ("midstream.runtime.epoch_runner", "EpochRunner._sweep"),
}
ONCE = (*list(BEFORE)[:3], "before the old is swept")
"""These are reached once in a run."""
PLACES = (*BEFORE, *IN_DRIVERS, *IN_TASKS)


class Pause(NamedTuple):
    """Where a driver pauses, and at which of its visits; in tasks: in which epoch."""

    point: str
    time: int = 1


class _Pauses:
    """Pauses this process and its JVM, which are one process group, at the given point."""

    def __init__(self, pause: Pause) -> None:
        self.point, self.left = pause

    def __call__(self, point: str) -> None:
        if point == self.point:
            self.left -= 1
            if self.left == 0:
                os.killpg(os.getpgrp(), signal.SIGSTOP)

    def before(self, function: Callable[..., Any], point: str) -> Callable[..., Any]:
        @wraps(function)
        def paused(*arguments: Any, **named: Any) -> Any:
            self(point)
            return function(*arguments, **named)

        return paused


def main(root: Path, pause: Pause) -> None:
    spark = session("local[2]", USERS_FILE_MANAGER)
    pauses = _Pauses(pause)
    with ExitStack() as stack:
        stack.enter_context(crash_hook(pauses))
        if pause.point in IN_TASKS:
            stack.enter_context(failing_tasks(root / "struck", [Fault("pause", pause.time, pause.point)]))
        if pause.point in BEFORE:
            module, function = BEFORE[pause.point]
            inner = attrgetter(function)(import_module(module))
            stack.enter_context(patch(f"{module}.{function}", pauses.before(inner, pause.point)))
        start(spark, root).awaitTermination()
    spark.stop()


if __name__ == "__main__":
    _, folder, where = sys.argv
    try:
        main(Path(folder), Pause(*json.loads(where)))
    except FencedError as error:
        print("FENCED", error)
        sys.exit(FENCED)
