"""Generations: in a cleanup, a row is joined with rows of its own generation and of earlier ones.

Each row that probes says by its generation which rows it may be joined with. So all generations of a group
are joined in one pass, however many there are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from midstream.engine.hashing import group_of
from midstream.engine.hot_keys import Positions
from midstream.engine.index_rows import IndexRows
from midstream.engine.probed_epochs import Mask
from midstream.engine.references import Integers, epoch_of
from midstream.plan.state_id import StateId
from midstream.state.memory import Cuts

_EPOCHS = 1 << 40
"""More epochs than a reference can name, so that a group and an epoch are one number."""
_EVERYTHING = slice(None)


@dataclass(frozen=True, eq=False)
class Generations:
    """The generations of some groups that become one."""

    groups: int
    ends: Integers
    """Where they end, in ascending order of groups and epochs."""
    before: Integers
    """For each group, how many ends there are of the groups before it."""

    @staticmethod
    def of(groups: int, generations: Mapping[int, Cuts]) -> Generations:
        """The generations of each of these groups, by where they end."""
        ends = [group * _EPOCHS + end for group in sorted(generations) for end in generations[group]]
        before = np.searchsorted(ends, np.arange(groups) * _EPOCHS)
        return Generations(groups, np.array(ends, np.int64), before)

    def numbers(
        self, rows: IndexRows, state: StateId, positions: Positions | slice = _EVERYTHING
    ) -> Integers:
        """The generation of the component of an input, of the rows at these positions; 0 is the oldest."""
        groups = group_of(rows.hashes[positions], self.groups)
        arrived = groups * _EPOCHS + epoch_of(rows.references[state][positions])
        return np.searchsorted(self.ends, arrived, side="right") - self.before[groups]


@dataclass(frozen=True, eq=False)
class GenerationFilter:
    """Pairs are joined if the found row is of no later generation than a component of the probing row."""

    generations: Generations
    head: StateId
    """The input of that component."""
    found: Integers
    """The generations of the rows that are searched."""
    is_earlier: bool
    """Whether the found row must even be of an earlier one."""
    differs: bool
    """Whether not all components of what is joined may be of one generation."""

    def __call__(self, rows: IndexRows, left: Positions, right: Positions) -> Mask:
        """Which pairs of a probing row and a found one are joined."""
        head, found = self.generations.numbers(rows, self.head, left), self.found[right]
        joined: Mask = found < head
        if self.is_earlier:
            return joined
        same = found == head
        if self.differs:
            differing = [self.generations.numbers(rows, s, left) != head for s in rows.references]
            same &= np.logical_or.reduce(differing)
        joined |= same
        return joined
