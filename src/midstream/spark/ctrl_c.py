"""Ctrl-C: the joins of this process stop before PySpark cancels all jobs.

PySpark handles the signal by cancelling all jobs, and then raises a KeyboardInterrupt. To Spark, a batch
whose job was cancelled like that has failed, and pages of its log say so. So joins are stopped first. A
handler of the user's own, or that of a notebook, which interrupts one cell, stays as it is.
"""

from __future__ import annotations

import signal
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import wait
from types import FrameType, FunctionType
from typing import Protocol

from pyspark import SparkContext

from midstream.spark.blocking_call import in_thread

_PATIENCE_SECONDS = 3.0
"""How long to wait for batches to end: one may be in a function of the user's, which is not interrupted."""


class Stoppable(Protocol):
    """A running query."""

    @property
    def isActive(self) -> bool:  # noqa: N802  # Spark's name
        """Whether the query is running."""

    def stop(self) -> None:
        """Stop the query."""


_running: weakref.WeakSet[Stoppable] = weakref.WeakSet()


def stop_on_ctrl_c(query: Stoppable) -> None:
    """Stop a query at a Ctrl-C, if PySpark would handle the signal."""
    _running.add(query)
    handler = signal.getsignal(signal.SIGINT)
    in_main_thread = threading.current_thread() is threading.main_thread()  # only it may set handlers
    if in_main_thread and isinstance(handler, FunctionType) and handler.__module__ == SparkContext.__module__:
        signal.signal(signal.SIGINT, _StopFirst(handler))


class _StopFirst:
    """A handler that stops running joins, then lets PySpark's handler cancel all other jobs."""

    def __init__(self, cancel_jobs: Callable[[int, FrameType | None], object]) -> None:
        self._cancel_jobs = cancel_jobs

    def __call__(self, number: int, frame: FrameType | None) -> None:
        queries = list(_running)
        _running.clear()  # at a second Ctrl-C nothing is waited for
        # In threads: this one may be in the middle of a call to the JVM.
        wait([in_thread("stop", query.stop) for query in queries], _PATIENCE_SECONDS)
        wait([in_thread("cancel jobs", lambda: self._cancel_jobs(number, frame))], _PATIENCE_SECONDS)
        raise KeyboardInterrupt
