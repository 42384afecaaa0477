"""Windows: how far apart in event time the rows of a result may be.

A window holds for a pair of streams: ``|time_i - time_j| <= width``. A pair without a stated window gets the
one that the others imply, the shortest path through them: if a and b are within 5 minutes and b and c within
10, then a and c are within 15. What is implied never changes a result; it lets state expire earlier.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import permutations, product

from midstream.values import Micros


@dataclass(frozen=True)
class Windows:
    """The windows of all pairs, stated and implied; a pair that is not in the table is unbounded."""

    widths: tuple[tuple[str, str, Micros], ...]

    def width(self, a: str, b: str) -> Micros | None:
        """How far apart rows of two streams may be, None if no window says so."""
        return self._by_pair.get((a, b) if a <= b else (b, a))

    @cached_property
    def _by_pair(self) -> dict[tuple[str, str], Micros]:
        return {(a, b): width for a, b, width in self.widths}

    def unbounded(self, streams: Sequence[str]) -> tuple[tuple[str, str], ...]:
        """Pairs of streams that need a window so that all pairs have one, the fewest that will do."""
        groups: list[str] = []
        for stream in streams:
            if all(self.width(first, stream) is None for first in groups):
                groups.append(stream)
        return tuple((groups[0], other) for other in groups[1:])

    def narrowest_first(self, streams: Iterable[str]) -> tuple[str, ...]:
        """The streams, the one with the narrowest window to any other stream of the query first.

        Stored rows with a hot key are searched by the time of the first: it excludes the most rows.
        """
        names = tuple(streams)
        crossing = (pair for pair in self.widths if (pair[0] in names) != (pair[1] in names))
        narrowest = min(((width, a if a in names else b) for a, b, width in crossing), default=None)
        return names if narrowest is None else tuple(dict.fromkeys((narrowest[1], *names)))


def imply_windows(
    streams: Sequence[str],
    default_window: Micros | None,
    stated: dict[tuple[str, str], Micros],
) -> Windows:
    """The windows that are stated, and those that they imply, by shortest path."""
    distance: dict[tuple[str, str], int] = {}
    for a, b in permutations(streams, 2):
        width = stated.get((a, b), stated.get((b, a), default_window))
        if width is not None:
            distance[a, b] = width
    for middle, a, b in product(streams, repeat=3):
        if a != b and (a, middle) in distance and (middle, b) in distance:
            through = distance[a, middle] + distance[middle, b]
            distance[a, b] = min(through, distance.get((a, b), through))
    return Windows(tuple((a, b, Micros(width)) for (a, b), width in sorted(distance.items()) if a < b))
