"""Which stored rows are probed if groups are spilled: those that arrived in a range of epochs of their group.

A row of any state is probed only if all its components arrived in the fragment in that range. References
begin with the epoch, so they tell. Rows that probe, the needles, do not search a slice that has no such rows
of their group: its pages stay out of memory. A slice without any such rows is not opened.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from midstream.engine.group_counts import read_groups
from midstream.engine.hashing import group_of
from midstream.engine.hot_keys import Positions
from midstream.engine.index_rows import IndexRows
from midstream.engine.memory_step import StateCuts
from midstream.engine.references import Integers, epoch_of
from midstream.state.slices import Slice

Mask = npt.NDArray[np.bool_]

_NEVER = np.iinfo(np.int64).max
_EVERYTHING = slice(None)


@dataclass(frozen=True, eq=False)
class ProbedEpochs:
    """The rows of a state that are probed, by group."""

    first: Integers
    """For each group, the first epoch of which rows are probed."""
    end: Integers
    """For each group, the epoch from which on rows are not probed."""
    rebuilt: Integers
    """For each group, the epoch before which no slice that is used may end."""

    @staticmethod
    def of(cuts: StateCuts) -> ProbedEpochs:
        """Of each spilled group the newest generation."""
        newest = {group: of_group[-1] for group, of_group in cuts.cuts.items()}
        rebuilt = {} if cuts.is_input else cuts.rebuilt
        end = np.full(cuts.groups, _NEVER)
        return ProbedEpochs(_by_group(cuts.groups, newest), end, _by_group(cuts.groups, rebuilt))

    @staticmethod
    def between(groups: int, ranges: Mapping[int, tuple[int, int]]) -> ProbedEpochs:
        """Of each of these groups the rows of a range of epochs, and none of other groups."""
        first = _by_group(groups, {group: range_[0] for group, range_ in ranges.items()})
        end = _by_group(groups, {group: range_[1] for group, range_ in ranges.items()})
        return ProbedEpochs(first, end, np.zeros(groups, np.int64))

    def needles(self, rows: IndexRows, run: IndexRows) -> IndexRows:
        """Those of the probing rows whose group may have rows in the slice that are probed."""
        if run.stored_in is None:
            return rows
        active = self.may_probe(run.stored_in)
        if active.all():
            return rows
        return rows.take(active[group_of(rows.hashes, len(active))])

    def may_have_rows(self, slice_: Slice) -> bool:
        """Whether a slice may have rows that are probed; if not, it need not even be opened."""
        probed = self.may_probe(slice_)
        if slice_.group_rows and not probed.all():
            probed &= _present(slice_.group_rows, len(probed))
        return bool(probed.any())

    def may_probe(self, slice_: Slice) -> Mask:
        """For each group, whether a slice may have rows of it that are probed, going by its epochs."""
        last = slice_.last_epoch
        return (last >= self.first) & (slice_.first_epoch < self.end) & (last >= self.rebuilt)

    def is_probed(self, run: IndexRows, positions: Positions | slice = _EVERYTHING) -> Mask:
        """Which of the rows at these positions are probed."""
        groups = group_of(run.hashes[positions], len(self.first))
        first, end = self.first[groups], self.end[groups]
        probed = np.ones(len(groups), np.bool_)
        if run.stored_in is not None:
            probed &= run.stored_in.last_epoch >= self.rebuilt[groups]
        for references in run.references.values():
            epochs = epoch_of(references[positions])
            probed &= (epochs >= first) & (epochs < end)
        return probed


@lru_cache(maxsize=4096)
def _present(group_rows: bytes, groups: int) -> Mask:
    """Which groups a slice has rows of; a cleanup asks for each of its generations."""
    return read_groups(group_rows, groups) > 0


def _by_group(groups: int, values: Mapping[int, int]) -> Integers:
    by_group = np.zeros(groups, np.int64)
    by_group[list(values)] = list(values.values())
    return by_group
