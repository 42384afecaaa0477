"""Holds: how early the rows may be that a fragment with spilled groups still owes.

Rows of fragments above must stay until all that is owed to them has arrived: a hold keeps them alive
(``state/expiry.py``). What is owed straddles a cut, so one of its rows arrived after the oldest cut of the
fragment, and was not before the watermark of its stream then. All others are within the windows of that row,
or of a row that a fragment below owed then. So the hold follows from the mark of the oldest cut alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set

from midstream.plan.fragment_name import streams_of
from midstream.query.window import Windows
from midstream.state.memory import Hold, Mark, Memory


def holds_of(memory: Memory, windows: Windows, names: Set[str]) -> tuple[Hold, ...]:
    """The holds of the fragments that owe rows to other fragments; ``names`` are all streams."""
    holds = []
    for fragment, groups in memory.cuts.items():
        streams = streams_of(fragment)
        # What the last fragment owes are results.
        if streams != names:
            mark = memory.marks[min(cuts[0] for cuts in groups.values())]
            holds.append({stream: earliest_owed(stream, mark, windows) for stream in sorted(streams)})
    return tuple(holds)


def earliest_owed(stream: str, mark: Mark, windows: Windows) -> int | None:
    """The earliest time of a stream's rows that may be part of what is owed; None for any time."""
    bounds = [earliest_behind(stream, {other: time}, windows) for other, time in mark.watermarks.items()]
    bounds += [earliest_behind(stream, hold, windows) for hold in mark.holds]
    return _smallest(bounds)


def earliest_behind(stream: str, others: Mapping[str, int | None], windows: Windows) -> int | None:
    """The earliest time of a stream's rows that may meet a row with components not before these times."""
    if stream in others:
        return others[stream]
    reaches = (
        time - window
        for other, time in others.items()
        if time is not None and (window := windows.bound(stream, other)) is not None
    )
    return max(reaches, default=None)


def _smallest(times: Iterable[int | None]) -> int | None:
    known = list(times)
    return None if None in known else min(time for time in known if time is not None)
