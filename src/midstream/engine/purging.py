"""Purging while groups are spilled: rows that may owe something stay, however old they are.

A row of a spilled group owes nothing if it had expired by the first cut of its group: whatever arrived since
then was too late for it. All others stay until the group is cleaned up. This is for the inputs of fragments,
from which a cleanup makes what is owed. Rows of intermediate states from before a cut are of no use.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from midstream.engine.hashing import group_of
from midstream.engine.index_rows import IndexRows
from midstream.engine.memory_step import StateCuts
from midstream.engine.places import Places
from midstream.engine.probed_rows import Mask, ProbedRows
from midstream.engine.references import epoch_of
from midstream.plan.state_id import StateId
from midstream.state.expiry import Expiry
from midstream.state.memory import Mark
from midstream.state.slices import Slice, SliceOwner


@dataclass(frozen=True)
class Purging:
    """Decides which stored rows are of use."""

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
        first_cut = min(self._first_cuts(owner), default=None)
        if first_cut is None:
            return True
        return last_epoch < first_cut and self._expiry_at(first_cut).has_expired(streams, latest)

    def useful(self, rows: IndexRows, slice_: Slice) -> IndexRows:
        """The index rows of a slice that are of use."""
        useful = self.expiry.is_live(rows.times, slice_.last_epoch)
        cuts = self.states.get(slice_.owner.state)
        if cuts is not None and cuts.is_input:
            useful |= self._may_owe(rows, cuts)
        elif cuts is not None:
            useful &= ProbedRows.of(cuts).is_probed(rows)
        return rows if useful.all() else rows.take(useful)

    def before_cuts(self, rows: IndexRows, owner: SliceOwner) -> Mask | None:
        """Which rows of an input are not probed, because their group was spilled; None if none is."""
        cuts = self.states.get(owner.state)
        if cuts is None or not cuts.is_input or not self.has_spilled(owner):
            return None
        return ~ProbedRows.of(cuts).is_probed(rows)

    def has_spilled(self, owner: SliceOwner) -> bool:
        """Whether some group of an input is spilled that this partition has, or had."""
        return bool(self._first_cuts(owner))

    def _first_cuts(self, owner: SliceOwner) -> list[int]:
        cuts = self.states.get(owner.state)
        if cuts is None or not cuts.is_input or self.places is None:
            return []
        held = self.places.ever_held(owner.partition, owner.key)
        return [of_group[0] for group, of_group in cuts.cuts.items() if held[group]]

    def _may_owe(self, rows: IndexRows, cuts: StateCuts) -> Mask:
        (references,) = rows.references.values()
        epochs, groups = epoch_of(references), group_of(rows.hashes, cuts.groups)
        owes = np.zeros(len(rows), np.bool_)
        for first_cut in sorted({of_group[0] for of_group in cuts.cuts.values()}):
            spilled = [group for group, of_group in cuts.cuts.items() if of_group[0] == first_cut]
            live = (epochs >= first_cut) | self._expiry_at(first_cut).is_live(rows.times)
            owes |= np.isin(groups, spilled) & live
        return owes

    def _expiry_at(self, cut: int) -> Expiry:
        mark = self.marks[cut]
        return Expiry(self.expiry.windows, mark.watermarks, holds=mark.holds)
