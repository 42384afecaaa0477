"""Crash points: the places where a process may die, by name, so that tests can make it die at each.

Nothing happens at a crash point unless a test installs a hook. The list is closed: a test that kills at
every point fails if a point was never reached, and a point that is not on the list is an error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from midstream.errors import InternalError

POINTS = (
    "after the intent is written",
    "before the step",
    "before a slice is written",
    "after a slice is written",
    "after results are staged",
    "after the step",
    "after the sink prepared",
    "before the commit",
    "after the commit",
    "after noting what is published",
    "after publishing",
    "after noting that it was published",
    "after deleting a slice",
    "after forgetting a manifest",
)

Hook = Callable[[str], None]
_hooks: list[Hook] = []


def crash_point(point: str) -> None:
    """Say that a crash point was reached."""
    if point not in POINTS:
        raise InternalError("a crash point must be on the list", got=repr(point))
    for hook in _hooks:
        hook(point)


@contextmanager
def crash_hook(hook: Hook) -> Iterator[None]:
    """Call ``hook`` at every crash point that this process reaches meanwhile."""
    _hooks.append(hook)
    try:
        yield
    finally:
        _hooks.remove(hook)
