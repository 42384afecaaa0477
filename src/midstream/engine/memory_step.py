"""The part of an epoch that is about memory: which groups are spilled, and what is cleaned up.

``state/memory.py`` says what cuts and generations are.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from midstream.plan.fragment_name import FragmentName
from midstream.plan.layout import Node
from midstream.plan.state_id import StateId
from midstream.state.memory import Cuts, Hold, Memory


@dataclass(frozen=True, slots=True)
class StateCuts:
    """What spilling means for one stored state; groups that it says nothing of are probed as a whole."""

    groups: int
    """How many groups there are."""
    is_input: bool
    """Whether the state is an input of its fragment. Others are rebuilt from the inputs if need be."""
    cuts: Mapping[int, Cuts]
    """The cuts of spilled groups, from this epoch on."""
    rebuilt: Mapping[int, int]
    """Groups whose rows in slices that end before an epoch are not used any more."""


@dataclass(frozen=True, slots=True)
class Cleanup:
    """Groups of a fragment in which this epoch makes what is owed, from the rows stored before it."""

    fragment: FragmentName
    node: Node
    """One join of all inputs of the fragment, whatever the tree inside of it."""
    generations: Mapping[int, Cuts]
    """For each group, where the generations that become one begin, but for the first, and the last ends."""
    restored: frozenset[int]
    """Groups that are probed as a whole from now on: their intermediate states are rebuilt."""

    def among(self, groups: Iterable[int]) -> Cleanup:
        """The cleanup of some groups, those of an engine partition."""
        generations = {group: self.generations[group] for group in groups if group in self.generations}
        return replace(self, generations=generations, restored=self.restored & generations.keys())


@dataclass(frozen=True, kw_only=True)
class MemoryStep:
    """What an epoch does about memory."""

    after: Memory
    """The groups that are spilled from this epoch on: it probes, stores and purges rows accordingly."""
    states: Mapping[StateId, StateCuts] = field(default_factory=dict)
    """The states with groups that are spilled, or were rebuilt."""
    cleanups: tuple[Cleanup, ...] = ()
    counts_groups: bool = False
    """Whether it is counted how many rows of each group are stored."""
    counts_flows: bool = False
    """Whether it is counted how many rows each group produces, and to which groups they go."""
    max_merged_bytes: int | None = None
    """How large slices may be that become one; None for any size."""
    holds: tuple[Hold, ...] = ()
    """What fragments owed when the epoch began."""
