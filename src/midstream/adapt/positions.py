"""Positions: how far each stream has come in event time, whatever single rows say.

A stream's position follows the end of its epochs' rows, without the few that are ahead. A step of several
windows, and of several times what the epoch's rows cover, may be a pause in the stream, or it may be that all
rows of a small epoch are ahead: it is believed once the next epoch confirms it. In the same way a position
goes back if epochs agree that it was wrong.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from midstream.engine.event_times import TimeRange

# A step is believed at once if it is at most so many windows long, or times what the epoch's rows cover.
_BELIEVED_WINDOWS = 2
_BELIEVED_SPANS = 4


class Position(NamedTuple):
    """How far a stream has come, in microseconds of event time; None before its first rows."""

    time: int | None = None
    last_end: int | None = None
    """The end of its last epoch's rows."""


def advance_position(position: Position, rows: TimeRange | None, window: float) -> Position:
    """The position of a stream after an epoch with rows of this range; ``window`` is in microseconds."""
    if rows is None:
        return position
    time, last_end, end = position.time, position.last_end, rows.end
    if time is None or last_end is None:
        return Position(end, end)
    believed = max(_BELIEVED_WINDOWS * window, _BELIEVED_SPANS * (end - rows.start))
    if abs(end - time) <= believed:
        return Position(max(time, end), end)
    if end > time:
        return Position(max(time, min(end, last_end)), end)
    return Position(max(end, last_end) if last_end < time - believed else time, end)


def median_position(times: Iterable[int | None]) -> int | None:
    """How far the streams have come: the median of their positions, so that a silent stream holds up none."""
    known = sorted(time for time in times if time is not None)
    return known[len(known) // 2] if known else None
