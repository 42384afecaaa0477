"""Calls that block in the JVM, made in threads of their own.

Each thread has its own connection to the JVM. A Ctrl-C in the middle of a call of the main thread breaks that
connection, and later calls of the main thread fail. So it waits in Python instead, where an interrupt does no
harm.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

T = TypeVar("T")


def in_thread(name: str, call: Callable[[], T]) -> Future[T]:
    """Make a call in a new thread; the process may end while it is under way."""
    outcome: Future[T] = Future()

    def run() -> None:
        try:
            outcome.set_result(call())
        except BaseException as error:  # whoever waits for the result gets it
            outcome.set_exception(error)

    threading.Thread(target=run, name=f"midstream {name}", daemon=True).start()
    return outcome


def result_of(outcome: Future[T], timeout: float | None = None) -> T:
    """Wait for a call. An interrupt leaves no traceback of how it was waited for."""
    try:
        return outcome.result(timeout)
    except KeyboardInterrupt:
        raise KeyboardInterrupt from None
