"""The end of a program: joins that still run are stopped.

Otherwise the batch that is running fails in the middle of a call between the JVM and this process, which has
gone, and Spark says so in pages of its log.
"""

from __future__ import annotations

import atexit
import threading
import weakref
from contextlib import suppress
from functools import cache
from typing import Protocol

_PATIENCE_SECONDS = 3.0
"""How long the program waits: a batch may be in a function of the user's, which is not interrupted."""


class Stoppable(Protocol):
    """A query that may run when the program ends."""

    def stop_at_exit(self) -> None:
        """Stop without beginning a thread."""


_running: weakref.WeakSet[Stoppable] = weakref.WeakSet()
_program_ends = threading.Event()
_all_stopped = threading.Event()


def stop_at_exit(query: Stoppable) -> None:
    """Stop a query when the program ends."""
    _running.add(query)
    _watch_for_end()


@cache
def _watch_for_end() -> None:
    # A program that ends cannot begin a thread any more, and without one it might wait for ever.
    threading.Thread(target=_stop_all, name="midstream end", daemon=True).start()
    atexit.register(_end)


def _end() -> None:
    _program_ends.set()
    _all_stopped.wait(_PATIENCE_SECONDS)


def _stop_all() -> None:
    _program_ends.wait()
    for query in list(_running):
        # The JVM may be gone already; there is nobody left to be told.
        with suppress(Exception):
            query.stop_at_exit()
    _all_stopped.set()
