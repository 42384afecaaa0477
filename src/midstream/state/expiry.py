"""Purging: when a stored row cannot be part of a future result any more.

A row (or a combined row) is still useful if some future result can contain it. A future result contains
at least one future row, of some stream j that the stored row does not have, and that row's time is at least
j's watermark. So the stored row is dead if for every such j one of its own components i is more
than the window of (i, j) behind j's watermark. This is the purging lemma of the papers, with a window
per pair and a watermark per stream; with one window and one watermark it says "its earliest
component is older than watermark - window".

        t_i            t_i + window(i, j)      watermark_j
         |---------------------|                    |
       stored                                       +--- future rows of j ----->        dead

Fragments below may owe rows whose times are before the watermarks (``state/memory.py``). A *hold* says of
each such row that for some stream j, its component is not before ``hold[j]``: the watermark of j when the
fragment began to owe. So a stored row is kept alive by what had kept it alive then, and none comes to life
again whose payload may have been dropped before.

If the windows have changed, a row is dead as well if it was dead by the earlier windows when they changed. It
stays so, however much wider the new ones are: it may have been dropped, and its payload with it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from midstream.query.window import Windows
from midstream.state.window_change import WindowChange


@dataclass(frozen=True)
class Expiry:
    """Decides by the watermarks of one epoch. Without one, a stream may still bring rows of any time."""

    windows: Windows
    watermarks: Mapping[str, int | None]
    changes: tuple[WindowChange, ...] = ()
    """The changes of the windows; rows from before one may have expired by then."""
    holds: tuple[Mapping[str, int | None], ...] = ()
    """For each fragment that owes rows, times by stream; some component of each row is not before its own."""
    _known: dict[tuple[str, ...], list[dict[str, int]]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )
    """The bounds by streams: an epoch asks for those of each state many times."""

    def has_changed_after(self, epoch: int) -> bool:
        """Whether the windows have changed after an epoch: rows from until then may have expired by that."""
        return any(epoch < change.epoch for change in self.changes)

    def is_live(
        self, times: Mapping[str, npt.NDArray[np.int64]], last_epoch: int | None = None
    ) -> npt.NDArray[np.bool_]:
        """Which rows may still be part of a result.

        All of them arrived up to ``last_epoch``; if it is None, they may have arrived after all changes of
        the windows.
        """
        live = self._is_live_now(times)
        for earlier in self._before_changes(last_epoch):
            live &= earlier._is_live_now(times)
        return live

    def has_expired(
        self, streams: Sequence[str], latest: Sequence[int], last_epoch: int | None = None
    ) -> bool:
        """Whether all rows are dead whose components are not after ``latest``, nor after ``last_epoch``."""
        return self._has_expired_now(streams, latest) or any(
            earlier._has_expired_now(streams, latest) for earlier in self._before_changes(last_epoch)
        )

    def time_left(self, streams: Sequence[str], latest: Sequence[int]) -> int | None:
        """How far watermarks have to go until rows up to ``latest`` have expired; None if they never do."""
        newest = dict(zip(streams, latest, strict=True))
        bounds = self._bounds(tuple(streams))
        if not all(bounds):
            return None
        lefts = (min(newest[stream] - oldest for stream, oldest in bound.items()) for bound in bounds)
        return max(0, *lefts)

    def _before_changes(self, last_epoch: int | None) -> list[Expiry]:
        """What had expired when the windows changed, for each change after an epoch."""
        after = [c for c in self.changes if last_epoch is not None and last_epoch < c.epoch]
        return [Expiry(change.windows, change.watermarks) for change in after]

    def _is_live_now(self, times: Mapping[str, npt.NDArray[np.int64]]) -> npt.NDArray[np.bool_]:
        count = len(next(iter(times.values())))
        live = np.zeros(count, np.bool_)
        for bounds in self._bounds(tuple(times)):
            within = np.ones(count, np.bool_)
            for stream, oldest in bounds.items():
                within &= times[stream] >= oldest
            live |= within
        return live

    def _has_expired_now(self, streams: Sequence[str], latest: Sequence[int]) -> bool:
        newest = dict(zip(streams, latest, strict=True))
        return all(
            any(newest[stream] < oldest for stream, oldest in bounds.items())
            for bounds in self._bounds(tuple(streams))
        )

    def _bounds(self, streams: tuple[str, ...]) -> list[dict[str, int]]:
        """For each other stream: the oldest times of components that may meet its future or owed rows."""
        if streams not in self._known:
            others = {s: mark for s, mark in self.watermarks.items() if s not in streams}
            owed = (hold for hold in self.holds if hold.keys().isdisjoint(streams))
            marks = [*others.items(), *(mark for hold in owed for mark in hold.items())]
            self._known[streams] = [self._bounds_for(streams, other, mark) for other, mark in marks]
        return self._known[streams]

    def _bounds_for(self, streams: tuple[str, ...], other: str, watermark: int | None) -> dict[str, int]:
        if watermark is None:
            return {}
        windows = ((stream, self.windows.width(stream, other)) for stream in streams)
        return {stream: watermark - window for stream, window in windows if window is not None}
