"""``window``: how a user says by which windows of event time results are grouped, as in PySpark."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta


@dataclass(frozen=True, slots=True)
class Window:
    """Windows as a user asks for them, not checked yet."""

    length: str | timedelta
    slide: str | timedelta | None
    start: str | timedelta | None
    time: str | None


def window(
    windowDuration: str | timedelta,  # noqa: N803  # Spark's names
    slideDuration: str | timedelta | None = None,  # noqa: N803
    startTime: str | timedelta | None = None,  # noqa: N803
    *,
    time: str | None = None,
) -> Window:
    """Windows of event time to group results by: ``groupBy(window("10 minutes", "1 minute"))``.

    Args:
        windowDuration: How long a window is.
        slideDuration: How far apart windows begin; left out, each begins where the one before it ends.
        startTime: How long after 1970 the first one begins; left out, at once.
        time: The event-time column of one of the streams, e.g. ``"orders.ordered_at"``. Left out, a result
            has the time of its latest component.
    """
    return Window(windowDuration, slideDuration, startTime, time)
