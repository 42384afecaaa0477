"""A promise that did not hold, and what counts as one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


class BrokenPromiseError(AssertionError):
    """A promise that did not hold."""

    def __init__(self, promise: str, what: str) -> None:
        super().__init__(promise, what)
        self.promise = promise
        self.what = what

    def __str__(self) -> str:
        return f"{self.promise}: {self.what}"


def check_promise(promise: str, kept: bool, what: str) -> None:
    """Raise if a promise was not kept."""
    if not kept:
        raise BrokenPromiseError(promise, what)


@contextmanager
def other_errors_are_broken_promises() -> Iterator[None]:
    """Any other error is a broken promise, too."""
    try:
        yield
    except BrokenPromiseError:
        raise
    except Exception as error:
        raise BrokenPromiseError("errors", f"{type(error).__name__}: {error}") from error


@contextmanager
def failures_break(promise: str) -> Iterator[None]:
    """A comparison that fails breaks a promise."""
    try:
        yield
    except AssertionError as error:
        raise BrokenPromiseError(promise, str(error)) from error
