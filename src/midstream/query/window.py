"""Windows: how far apart in event time the rows of a result may be.

A bound holds for a pair of streams: ``|time_i - time_j| <= bound``. A pair without a stated bound gets the
one that the others imply, the shortest path through them: if a and b are within 5 minutes and b and c within
10, then a and c are within 15. Closing the bounds never changes a result; it lets state expire earlier.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import permutations, product

from midstream.values import Micros


@dataclass(frozen=True)
class Windows:
    """The closed bounds of all pairs; a pair that is not in the table is unbounded."""

    bounds: tuple[tuple[str, str, Micros], ...]

    def bound(self, a: str, b: str) -> Micros | None:
        """The bound of a pair, or None if it has none."""
        return self._by_pair.get((a, b) if a <= b else (b, a))

    @cached_property
    def _by_pair(self) -> dict[tuple[str, str], Micros]:
        return {(a, b): bound for a, b, bound in self.bounds}

    def unbounded(self, streams: Sequence[str]) -> tuple[tuple[str, str], ...]:
        """Pairs of streams that need a bound so that all pairs have one, the fewest that will do."""
        groups: list[str] = []
        for stream in streams:
            if all(self.bound(first, stream) is None for first in groups):
                groups.append(stream)
        return tuple((groups[0], other) for other in groups[1:])

    def narrowest_first(self, streams: Iterable[str]) -> tuple[str, ...]:
        """The streams, the one with the narrowest bound to any other stream of the query first.

        Stored rows with a hot key are searched by the time of the first: it excludes the most rows.
        """
        names = tuple(streams)
        crossing = (pair for pair in self.bounds if (pair[0] in names) != (pair[1] in names))
        narrowest = min(((bound, a if a in names else b) for a, b, bound in crossing), default=None)
        return names if narrowest is None else tuple(dict.fromkeys((narrowest[1], *names)))


def imply_windows(
    streams: Sequence[str],
    default_window: Micros | None,
    stated: dict[tuple[str, str], Micros],
) -> Windows:
    """The windows that are stated, and those that they imply, by shortest path."""
    distance: dict[tuple[str, str], int] = {}
    for a, b in permutations(streams, 2):
        bound = stated.get((a, b), stated.get((b, a), default_window))
        if bound is not None:
            distance[a, b] = bound
    for middle, a, b in product(streams, repeat=3):
        if a != b and (a, middle) in distance and (middle, b) in distance:
            through = distance[a, middle] + distance[middle, b]
            distance[a, b] = min(through, distance.get((a, b), through))
    return Windows(tuple((a, b, Micros(bound)) for (a, b), bound in sorted(distance.items()) if a < b))
