"""Times as the JSON form of progress has them: ISO 8601, in UTC, with milliseconds."""

from __future__ import annotations

from datetime import UTC, datetime


def show_event_time(micros: int | None) -> str | None:
    """An event time in microseconds; None stays None."""
    if micros is None:
        return None
    seconds, rest = divmod(micros, 1_000_000)
    try:
        return iso(datetime.fromtimestamp(seconds, UTC).replace(microsecond=rest))
    except (ValueError, OverflowError, OSError):
        # Event times may lie outside the years that Python's calendar has.
        return f"{micros} us"


def iso(moment: datetime) -> str:
    """A moment in UTC."""
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
