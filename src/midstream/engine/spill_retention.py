"""Which rows stay while groups are spilled: those that may owe something, however old they are.

A row of a spilled group owes nothing if it had expired by the first cut of its group: whatever arrived since
then was too late for it. All others stay until the group is cleaned up. This is for the inputs of fragments,
from which a cleanup makes what is owed. Rows of intermediate states from before a cut are of no use.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from midstream.engine.hashing import group_of
from midstream.engine.index_rows import IndexRows
from midstream.engine.memory_step import StateCuts
from midstream.engine.places import Places
from midstream.engine.probed_epochs import Mask, ProbedEpochs
from midstream.engine.references import Integers, epoch_of
from midstream.plan.state_id import StateId
from midstream.state.expiry import Expiry
from midstream.state.memory import Mark
from midstream.state.slices import Slice, SliceOwner

_NEVER = np.iinfo(np.int64).max


@dataclass(frozen=True)
class SpillRetention:
    """Decides which stored rows are of use, in all partitions; what it has worked out once it remembers."""

    expiry: Expiry
    states: Mapping[StateId, StateCuts] = field(default_factory=dict)
    """The states with spilled groups."""
    marks: Mapping[int, Mark] = field(default_factory=dict)
    places: Places | None = None
    """Where groups are and were; None if there are none that are spilled."""

    def is_useless(self, owner: SliceOwner, latest: Sequence[int], last_epoch: int) -> bool:
        """Whether a slice or segment is of no use that has no row after ``latest``, nor ``last_epoch``."""
        streams = owner.state.streams
        if not self.expiry.has_expired(streams, latest, last_epoch):
            return False
        first_cut = self._first_cut(owner)
        if first_cut is None:
            return True
        return last_epoch < first_cut and self._expiry_at(first_cut).has_expired(streams, latest)

    def useful(self, rows: IndexRows, slice_: Slice) -> IndexRows:
        """The index rows of a slice that are of use."""
        useful = self.expiry.is_live(rows.times, slice_.last_epoch)
        cuts = self.states.get(slice_.owner.state)
        if cuts is not None and cuts.is_input:
            useful |= self._may_owe(rows, slice_.owner.state)
        elif cuts is not None:
            useful &= self.probed[slice_.owner.state].is_probed(rows)
        return rows if useful.all() else rows.take(useful)

    def before_cuts(self, rows: IndexRows, owner: SliceOwner) -> Mask | None:
        """Which rows of an input are not probed, because their group was spilled; None if none is."""
        cuts = self.states.get(owner.state)
        if cuts is None or not cuts.is_input or not self.has_spilled(owner):
            return None
        return ~self.probed[owner.state].is_probed(rows)

    def has_spilled(self, owner: SliceOwner) -> bool:
        """Whether some group of an input is spilled that this partition has, or had."""
        return self._first_cut(owner) is not None

    @cached_property
    def probed(self) -> Mapping[StateId, ProbedEpochs]:
        """The rows that are probed, of the states with spilled groups."""
        return {state: ProbedEpochs.of(cuts) for state, cuts in self.states.items()}

    def _first_cut(self, owner: SliceOwner) -> int | None:
        """The first cut of the groups of an input that a partition has, or had; None if none is spilled."""
        cuts = self.states.get(owner.state)
        if cuts is None or not cuts.is_input or self.places is None:
            return None
        known = owner.state, owner.key, owner.partition
        if known not in self._oldest:
            held = self.places.ever_held(owner.partition, owner.key)
            oldest = int(self._first_cuts[owner.state].min(where=held, initial=_NEVER))
            self._oldest[known] = None if oldest == _NEVER else oldest
        return self._oldest[known]

    @cached_property
    def _first_cuts(self) -> Mapping[StateId, Integers]:
        """The first cut of each group, by input."""
        first_cuts: dict[StateId, Integers] = {}
        for state, cuts in self.states.items():
            first_cuts[state] = np.full(cuts.groups, _NEVER)
            first_cuts[state][list(cuts.cuts)] = [of_group[0] for of_group in cuts.cuts.values()]
        return first_cuts

    @cached_property
    def _oldest(self) -> dict[tuple[object, ...], int | None]:
        return {}

    def _may_owe(self, rows: IndexRows, state: StateId) -> Mask:
        (references,) = rows.references.values()
        first_cuts = self._first_cuts[state]
        first_cuts = first_cuts[group_of(rows.hashes, len(first_cuts))]
        owes: Mask = first_cuts != _NEVER
        # Groups may have been spilled in any number of epochs: only those of these rows are looked at.
        for first_cut in np.unique(first_cuts[owes]).tolist():
            these = np.flatnonzero(first_cuts == first_cut)
            times = {stream: column[these] for stream, column in rows.times.items()}
            is_later = epoch_of(references[these]) >= first_cut
            owes[these] = is_later | self._expiry_at(first_cut).is_live(times)
        return owes

    def _expiry_at(self, cut: int) -> Expiry:
        if cut not in self._expiries:
            mark = self.marks[cut]
            self._expiries[cut] = Expiry(self.expiry.windows, mark.watermarks, holds=mark.holds)
        return self._expiries[cut]

    @cached_property
    def _expiries(self) -> dict[int, Expiry]:
        return {}
