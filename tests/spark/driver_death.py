"""The death of a driver whose query runs on Spark: an error at a crash point, and a start after it."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from midstream.runtime.crash_points import crash_hook

AROUND_THE_COMMIT = ("after the sink prepared", "after the commit", "after noting that it was published")


class DriverDiesError(Exception):
    """The driver dies here. An ``Exception``, unlike ``SimulatedCrash``: Spark ends the query by no other."""


@contextmanager
def die_once_at_each(*points: str) -> Iterator[list[str]]:
    """Die once at each of the points, each time a little further on; gives where it happened."""
    died: list[str] = []

    def die(point: str) -> None:
        if len(died) < len(points) and point == points[len(died)]:
            died.append(point)
            raise DriverDiesError(point)

    with crash_hook(die):
        yield died


def run_through(start: Callable[[], object]) -> int:
    """Start again and again until the query is through; gives how often it died."""
    deaths = 0
    while True:
        try:
            start()
            return deaths
        except Exception as error:
            if DriverDiesError.__name__ not in f"{type(error).__name__}: {error}":
                raise
            deaths += 1
