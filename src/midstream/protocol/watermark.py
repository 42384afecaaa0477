r"""Watermarks: how far each stream has come, and from when on its rows are late.

A stream's watermark is the largest event time that it brought in earlier epochs, less its lateness; a row
before it is late. An idle stream would hold back everybody's state for ever, because a row of any age
might still come from it. With an ``idleTimeout`` it is *idle* once the event time of the others has gone
on by more than that while it brought nothing: its watermark then follows the slowest of the active
streams, and what it brings later from before that is late. Everything is event time, so running an
epoch again decides the same.

One row from the future would end all that: its stream's watermark would be there, and with it, for idle
streams, everybody's. So a row that is further ahead of the clock than ``maxEventTimeAhead`` moves nothing
and takes part in nothing. The clock is that of the epoch's intent, so that an epoch that runs again judges by
the same; for replays of old streams it may be the stream's own progress instead.

    others   ----10:00---------10:05---------10:11--->
    quiet    --x (last row)                   |
                 \______ idleTimeout 10 min __/ idle from here
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from midstream.engine.program import InputCount
from midstream.protocol.intent import Intent
from midstream.protocol.settings import Clock
from midstream.query.query import Query
from midstream.state.manifest import StreamProgress
from midstream.values import Micros

_LAST = 2**63 - 1
"""The last moment that an event time can be."""


def latest_accepted(marks: Mapping[str, StreamProgress], intent: Intent) -> dict[str, int | None]:
    """The latest event time that a row of each stream may have in an epoch; None for any."""
    ahead = intent.settings.max_event_time_ahead
    if ahead is None:
        return dict.fromkeys(marks)
    clocks: dict[Clock, dict[str, int | None]] = {
        "wall": dict.fromkeys(marks, intent.now),
        # Of a stream that has brought nothing yet, nobody knows what its times are like.
        "stream": {name: mark.latest for name, mark in marks.items()},
    }
    now = clocks[intent.settings.event_time_clock]
    return {name: None if time is None else min(time + ahead, _LAST) for name, time in now.items()}


def advance_marks(
    query: Query,
    marks: Mapping[str, StreamProgress],
    counts: Mapping[str, InputCount],
    idle_timeout: Micros | None,
) -> dict[str, StreamProgress]:
    """The marks after an epoch that brought ``counts``."""
    moved = {
        s.name: _advance(marks[s.name], counts.get(s.name, InputCount()), s.lateness) for s in query.streams
    }
    times = [mark.latest for mark in moved.values() if mark.latest is not None]
    if not times:
        return moved
    now = max(times)
    for name, mark in moved.items():
        brought = counts.get(name, InputCount()).accepted > 0
        last_active = now if brought or mark.last_active is None else mark.last_active
        idle = idle_timeout is not None and not brought and now - last_active > idle_timeout
        moved[name] = replace(mark, last_active=last_active, idle=idle)
    active = [m.watermark for m in moved.values() if not m.idle]
    if not active or None in active:
        return moved
    slowest = min(watermark for watermark in active if watermark is not None)
    return {name: _follow(mark, slowest) if mark.idle else mark for name, mark in moved.items()}


def _follow(mark: StreamProgress, slowest: int) -> StreamProgress:
    ahead = mark.watermark is not None and mark.watermark >= slowest
    return mark if ahead else replace(mark, watermark=slowest)


def _advance(mark: StreamProgress, count: InputCount, lateness: Micros) -> StreamProgress:
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
