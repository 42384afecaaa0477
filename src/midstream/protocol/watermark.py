r"""Watermarks: how far each stream has come, and which of its rows are late.

A stream's watermark is its largest event time of earlier epochs, less its lateness; a row before it is late.
A silent stream would keep all state from expiring, because a row of any age might still come from it. With an
``idleTimeout`` it is *idle* once the event time of the others has advanced by more than that while it had no
rows: its watermark then follows the slowest of the active streams, and later rows from before that are late.
All of this is event time, so running an epoch again gives the same watermarks.

One row from the future would defeat this: the watermark of its stream would jump there, and with it those of
idle streams. So a row that is further ahead of the clock than ``maxEventTimeAhead`` moves no watermark and is
not joined. The clock is that of the epoch's intent, so that every attempt of an epoch has the same; for
replays of old streams it may be the stream's own progress instead.

    others   ----10:00---------10:05---------10:11--->
    quiet    --x (last row)                   |
                 \______ idleTimeout 10 min __/ idle from here
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from midstream.engine.program import StreamCounts
from midstream.protocol.intent import Intent
from midstream.protocol.settings import Clock
from midstream.query.query import Query
from midstream.state.manifest import StreamProgress
from midstream.values import Micros

_MAX_EVENT_TIME = Micros(2**63 - 1)


def latest_allowed(marks: Mapping[str, StreamProgress], intent: Intent) -> dict[str, int | None]:
    """The latest event time that a row of each stream may have in an epoch; None for any."""
    ahead = intent.settings.max_event_time_ahead
    if ahead is None:
        return dict.fromkeys(marks)
    clocks: dict[Clock, dict[str, int | None]] = {
        "wall": dict.fromkeys(marks, intent.now),
        # Nothing is known about the times of a stream that has had no rows yet.
        "stream": {name: mark.latest for name, mark in marks.items()},
    }
    now = clocks[intent.settings.event_time_clock]
    return {name: None if time is None else min(time + ahead, _MAX_EVENT_TIME) for name, time in now.items()}


def advance_progress(
    query: Query,
    marks: Mapping[str, StreamProgress],
    counts: Mapping[str, StreamCounts],
    idle_timeout: Micros | None,
) -> dict[str, StreamProgress]:
    """The progress of the streams after an epoch with ``counts``."""
    moved = {
        s.name: _advance(marks[s.name], counts.get(s.name, StreamCounts()), s.lateness) for s in query.streams
    }
    times = [mark.latest for mark in moved.values() if mark.latest is not None]
    if not times:
        return moved
    now = max(times)
    for name, mark in moved.items():
        has_rows = counts.get(name, StreamCounts()).accepted > 0
        last_active = now if has_rows or mark.last_active is None else mark.last_active
        idle = idle_timeout is not None and not has_rows and now - last_active > idle_timeout
        moved[name] = replace(mark, last_active=last_active, idle=idle)
    active = [m.watermark for m in moved.values() if not m.idle]
    if not active or None in active:
        return moved
    slowest = min(watermark for watermark in active if watermark is not None)
    return {name: _follow(mark, slowest) if mark.idle else mark for name, mark in moved.items()}


def _follow(mark: StreamProgress, slowest: int) -> StreamProgress:
    ahead = mark.watermark is not None and mark.watermark >= slowest
    return mark if ahead else replace(mark, watermark=slowest)


def _advance(mark: StreamProgress, count: StreamCounts, lateness: Micros) -> StreamProgress:
    times = [time for time in (mark.latest, count.latest) if time is not None]
    latest = max(times, default=None)
    own = latest - lateness if latest is not None else None
    marks = [time for time in (mark.watermark, own) if time is not None]
    return replace(
        mark,
        latest=latest,
        watermark=max(marks, default=None),
        rows=mark.rows + count.rows,
        late=mark.late + count.late,
        null_time=mark.null_time + count.null_time,
        null_key=mark.null_key + count.null_key,
        future=mark.future + count.future,
    )
