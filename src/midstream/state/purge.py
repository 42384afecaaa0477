"""Purging: when is a stored row of no more use?

A row (or a combined row) is still useful if some future result can contain it. A future result contains
at least one row yet to come, of some stream j that the stored row does not have, and that row's time is
at least j's watermark. So the stored row is dead if for every such j one of its own components i is more
than the window of (i, j) behind j's watermark. This is the purging lemma of the papers, with a window
per pair and a watermark per stream; with one window and one watermark it says "its earliest
component is older than watermark - window".

        t_i            t_i + window(i, j)      watermark_j
         |---------------------|                    |
       stored                                       +--- rows of j to come ---->        dead
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from midstream.query.window import Windows


@dataclass(frozen=True)
class Purge:
    """Decides by the watermarks of one epoch. A stream without a watermark may still bring anything."""

    windows: Windows
    watermarks: Mapping[str, int | None]

    def alive(self, times: Mapping[str, npt.NDArray[np.int64]]) -> npt.NDArray[np.bool_]:
        """Which rows may still be part of a result."""
        count = len(next(iter(times.values())))
        alive = np.zeros(count, np.bool_)
        for bounds in self._bounds(tuple(times)):
            useful = np.ones(count, np.bool_)
            for stream, oldest in bounds.items():
                useful &= times[stream] >= oldest
            alive |= useful
        return alive

    def is_dead(self, streams: Sequence[str], latest: Sequence[int]) -> bool:
        """Whether every row is dead whose components are at most as late as ``latest``."""
        newest = dict(zip(streams, latest, strict=True))
        return all(
            any(newest[stream] < oldest for stream, oldest in bounds.items())
            for bounds in self._bounds(tuple(streams))
        )

    def _bounds(self, streams: tuple[str, ...]) -> list[dict[str, int]]:
        """For each stream that may still meet these: the oldest time that each component may have."""
        found = []
        for other, watermark in self.watermarks.items():
            if other in streams:
                continue
            bounds: dict[str, int] = {}
            for stream in streams:
                window = self.windows.bound(stream, other)
                if watermark is not None and window is not None:
                    bounds[stream] = watermark - window
            found.append(bounds)
        return found
