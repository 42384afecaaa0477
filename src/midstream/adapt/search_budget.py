"""How much the search for the best plan may do: it counts what it looks at, since the core has no clock."""

from __future__ import annotations

from midstream.adapt.stream_sets import StreamSets

COMBINATIONS_PER_EFFORT = 2
"""An estimate takes as long, for each unit of its effort, as to look at so many combinations."""


class SearchBudget:
    """What a search has looked at so far, in combinations of inputs, and the most that it may."""

    def __init__(self, sets: StreamSets, most: int) -> None:
        self._sets = sets
        self._estimated_before = sets.estimated
        self._most = most
        self._combinations = 0

    def spend(self, combinations: int) -> None:
        """Some combinations of inputs have been looked at."""
        self._combinations += combinations

    @property
    def left(self) -> int:
        """How many combinations more may be looked at."""
        estimated = self._sets.estimated - self._estimated_before
        return self._most - self._combinations - COMBINATIONS_PER_EFFORT * estimated
