"""Spilled groups in the manifest: which stored rows are not probed for now, and what is owed for it.

The unit is a partition group of a fragment. Spilling one writes no file: it is a **cut**, an epoch from which
on rows that arrived in the fragment before it are not probed. Rows between two cuts are of one *generation*.
What is made as rows arrive are the combinations of the newest generation. All that straddle a cut are *owed*,
and nothing else has to be written down. A cleanup makes what is owed, and removes cuts.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import msgspec

from midstream.plan.fragment_name import FragmentName
from midstream.plan.state_id import StateId

Cuts = tuple[int, ...]
"""The cuts of a group: epochs, in ascending order."""

Hold = dict[str, int | None]
"""Times by stream: each row that a fragment still owes has some component not before the time of its stream;
None if it may have any time."""


class Mark(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What had expired when a cut was made: rows that had by then owe nothing."""

    watermarks: dict[str, int | None]
    latest: int | None = None
    """The newest event time of all streams."""
    holds: tuple[Hold, ...] = ()
    """Of the fragments that owed something then."""


class GroupStatistics(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the groups of a fragment have produced, faded: 4 bytes a group, floating-point, little-endian."""

    rows: bytes
    """Rows that the fragment produced."""
    results: bytes
    """Results that these were part of."""
    stored_bytes: bytes
    """Bytes that these take in states of other fragments."""
    intermediate: bytes = b""
    """How many bytes the fragment's intermediate states have for each byte of its inputs that is probed: what
    a group that comes back needs besides. Empty in a manifest from before this was known."""


MemoryAction = Literal["spilled", "cleaned up", "brought back"]


class MemoryChange(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What an epoch has done about memory, and why."""

    action: MemoryAction
    fragment: FragmentName
    groups: int
    bytes: int
    """The size of these groups: what was active of those that were spilled, all that others have."""
    reason: str


class Memory(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The groups that are spilled after an epoch."""

    cuts: dict[FragmentName, dict[int, Cuts]] = {}
    """By fragment and group; groups that are not spilled have no entry."""
    marks: dict[int, Mark] = {}
    """For every epoch that is a cut."""
    rebuilt: dict[StateId, dict[int, int]] = {}
    """By intermediate state: groups that came back, and the epoch in which the state was rebuilt for them.
    What slices that end before it have of these groups is not used any more."""

    statistics: dict[FragmentName, GroupStatistics] = {}
    """By fragment; kept while there is a budget."""
    changes: tuple[MemoryChange, ...] = ()
    """Of this epoch."""
    waiting_plan: str = ""
    """The plan that was requested, and waits until what it changes is cleaned up."""

    def spilled(self) -> Iterator[tuple[FragmentName, int, Cuts]]:
        """All spilled groups, with their cuts."""
        for fragment, groups in self.cuts.items():
            for group, cuts in groups.items():
                yield fragment, group, cuts
