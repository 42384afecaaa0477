"""Spill strategies: which groups are spilled first. To add one, add an entry to the table.

- **bottom_up**: groups of the lowest fragments, at random.
- **local_output**: those whose fragment produces least from them, for their size.
- **global_output**: those that the fewest results are due to, for their size.
- **global_output_penalty**: the same, where the size includes what their rows take in fragments above.
- **random**, **largest** and **most_productive** are for comparison.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from midstream.errors import OptionError, show_value
from midstream.plan.fragment_name import FragmentName


@dataclass(frozen=True, slots=True)
class SpillCandidate:
    """A group of a fragment that may be spilled, or come back."""

    fragment: FragmentName
    group: int
    stage: int
    """Of the fragment; the lowest is 0."""
    size: float
    """Its bytes."""
    output: float
    """Rows that its fragment has produced from it, faded."""
    results: float
    """Results that these were part of."""
    stored_bytes: float
    """Bytes that these take in fragments above."""
    epoch: int
    restored_bytes: float = 0.0
    """Bytes that intermediate states need besides, if the group comes back."""

    @property
    def whole_size(self) -> float:
        """Its bytes if it comes back."""
        return self.size + self.restored_bytes

    @property
    def productivity(self) -> float:
        """Results for its size."""
        return self.results / max(self.size, 1.0)

    @property
    def chance(self) -> float:
        """A number that looks random, but is the same each time the epoch is run."""
        text = f"{self.epoch} {self.fragment} {self.group}"
        return int.from_bytes(hashlib.sha256(text.encode()).digest()[:6])


Rank = Callable[[SpillCandidate], tuple[float | str, ...]]
"""Groups with the lowest rank are spilled first."""

STRATEGIES: Mapping[str, Rank] = {
    "bottom_up": lambda group: (group.stage, group.chance),
    "local_output": lambda group: (group.output / max(group.size, 1.0),),
    "global_output": lambda group: (group.productivity,),
    "global_output_penalty": lambda group: (group.results / max(group.size + group.stored_bytes, 1.0),),
    "random": lambda group: (group.chance,),
    "largest": lambda group: (-group.size,),
    "most_productive": lambda group: (-group.productivity,),
}
SPILL_STRATEGIES: tuple[str, ...] = tuple(STRATEGIES)


def rank_of(name: str) -> Rank:
    """The order of a strategy; an error if there is none of that name."""
    if name not in STRATEGIES:
        raise OptionError(f"spill must be one of {', '.join(STRATEGIES)}", got=show_value(name))
    strategy = STRATEGIES[name]
    # The first group of several that are equal, so that it does not depend on anything else.
    return lambda group: (*strategy(group), group.fragment, group.group)
