"""Ctrl-C: the joins of this process stop before PySpark cancels all jobs.

PySpark handles the signal by cancelling all jobs, and then raises a KeyboardInterrupt. To Spark, a batch
whose job was cancelled like that has failed, and pages of its log say so. So joins are stopped first. A
handler of the user's own, or that of a notebook, which interrupts one cell, stays as it is.

A program that waits in ``spark.streams.awaitAnyTermination()`` is interrupted when that returns, which it
does as soon as a join has stopped. An interrupt in the middle of it would break the connection to the JVM, by
which the program may want to tidy up.
"""

from __future__ import annotations

import signal
import sys
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import wait
from functools import partial
from types import FrameType, FunctionType
from typing import NoReturn, Protocol

from pyspark import SparkContext
from pyspark.sql.streaming.query import StreamingQueryManager

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
        stopping = wait([in_thread("stop", partial(_stop, query)) for query in queries], _PATIENCE_SECONDS)
        wait([in_thread("cancel jobs", lambda: self._cancel_jobs(number, frame))], _PATIENCE_SECONDS)
        returns = any(stopped.exception() is None and stopped.result() for stopped in stopping.done)
        waiting = _await_any(frame)
        if waiting is None or not returns or sys.gettrace() is not None:
            raise KeyboardInterrupt
        _interrupt_at_return(waiting)


def _stop(query: Stoppable) -> bool:
    """Stop a query; whether it was running."""
    was_active = query.isActive
    query.stop()
    return was_active


def _await_any(frame: FrameType | None) -> FrameType | None:
    """The call of ``awaitAnyTermination`` that was interrupted, if one was."""
    while frame is not None and frame.f_code is not StreamingQueryManager.awaitAnyTermination.__code__:
        frame = frame.f_back
    return frame


def _interrupt_at_return(waiting: FrameType) -> None:
    """Raise a KeyboardInterrupt when a call that is under way returns, by what debuggers use for that."""

    def interrupt(frame: FrameType, _event: str, _argument: object) -> NoReturn:
        sys.settrace(None)
        frame.f_trace = None
        raise KeyboardInterrupt

    waiting.f_trace_lines = False
    waiting.f_trace = interrupt
    sys.settrace(lambda *_: None)
