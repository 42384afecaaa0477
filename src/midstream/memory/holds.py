"""Holds: how early the rows may be that a fragment with spilled groups still owes.

Rows of fragments above must stay until all that is owed to them has arrived: a hold keeps them alive
(``state/expiry.py``). What is owed straddles a cut, so one of its rows arrived in the fragment after the
oldest cut. That has a component that was not before the watermark of its stream then, or it came from a
fragment below that owed it then. So the hold follows from the mark of the oldest cut alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Set

from midstream.plan.fragment_name import fragment_streams
from midstream.query.window import Windows
from midstream.state.memory import Hold, Mark, Memory


def holds_of(memory: Memory, names: Set[str]) -> tuple[Hold, ...]:
    """The holds of the fragments that owe rows to other fragments; ``names`` are all streams."""
    holds = []
    for fragment, groups in memory.cuts.items():
        streams = frozenset(fragment_streams(fragment))
        # What the last fragment owes are results.
        if streams != names:
            mark = memory.marks[min(cuts[0] for cuts in groups.values())]
            holds.append(owed_since(mark, streams))
    return tuple(holds)


def owed_since(mark: Mark, streams: Set[str]) -> Hold:
    """For each stream of a fragment, the time before which no row was, of those that it owes since a mark."""
    below = [hold for hold in mark.holds if hold.keys() <= streams]
    return {
        stream: _smallest([mark.watermarks[stream], *(hold[stream] for hold in below if stream in hold)])
        for stream in sorted(streams)
    }


def earliest_behind(stream: str, other: str, time: int | None, windows: Windows) -> int | None:
    """The earliest time of a stream's rows that may meet a row of a stream at a time; None for any time."""
    if stream == other:
        return time
    window = windows.width(stream, other)
    return None if time is None or window is None else time - window


def _smallest(times: Iterable[int | None]) -> int | None:
    known = list(times)
    return None if None in known else min(time for time in known if time is not None)
