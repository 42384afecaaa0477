"""Sizes of groups: how many bytes of each are active, which means probed, and how many there are in all.

They follow from the slices of a manifest, which say how many rows of each group they have.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from midstream.engine.group_counts import (
    GroupFigures,
    count_pairs,
    decode_group_counts,
    encode_group_counts,
    sums_by_group,
)
from midstream.engine.memory_step import StateCuts
from midstream.engine.places import UNPLACED_PARTITION, Places
from midstream.engine.probed_epochs import ProbedEpochs
from midstream.plan.fragment_name import FragmentName, fragment_key, fragment_name
from midstream.plan.layout import Fragment, Layout
from midstream.plan.state_id import StateId
from midstream.state.slices import Counts, Slice, SliceKind


@dataclass(frozen=True)
class FragmentSizes:
    """The sizes of the groups of a fragment, in bytes; rows are those of its inputs."""

    stage: int
    active: GroupFigures
    intermediate: GroupFigures
    """What intermediate states have of the active bytes."""
    total: GroupFigures
    active_rows: GroupFigures
    spilled_rows: GroupFigures

    def __add__(self, other: FragmentSizes) -> FragmentSizes:
        return FragmentSizes(
            self.stage,
            self.active + other.active,
            self.intermediate + other.intermediate,
            self.total + other.total,
            self.active_rows + other.active_rows,
            self.spilled_rows + other.spilled_rows,
        )


@dataclass(frozen=True)
class GroupSizes:
    """The sizes of all groups."""

    fragments: Mapping[FragmentName, FragmentSizes]
    """Of fragments that a key places; others cannot be spilled."""
    fixed: GroupFigures
    """For each partition, the active bytes of fragments that no key places."""
    places: Places

    @cached_property
    def active(self) -> list[float]:
        """For each partition, its active bytes."""
        active = self.fixed.copy()
        for name, fragment in self.fragments.items():
            here = self.places.routing(fragment_key(name)).partitions
            active += np.bincount(here, fragment.active, minlength=len(active))
        by_partition: list[float] = active.tolist()
        return by_partition


def group_sizes(
    layouts: Iterable[Layout], states: Mapping[StateId, StateCuts], slices: Sequence[Slice], places: Places
) -> GroupSizes:
    """The sizes of the groups of running plans; ``states`` are those with spilled groups."""
    counter = _Counter(states, slices, places)
    sizes: dict[FragmentName, FragmentSizes] = {}
    fixed = np.zeros(places.partitions)
    seen: set[StateId] = set()
    for fragment in (fragment for layout in layouts for fragment in layout.fragments):
        new_states = [state for state in fragment.arrangements if state not in seen]
        seen.update(new_states)
        counted = counter.fragment(fragment, new_states)
        if not fragment.key:
            # Without a key, all rows are in the first group.
            fixed[UNPLACED_PARTITION] += counted.active.sum()
            continue
        name = fragment_name(fragment)
        sizes[name] = counted if name not in sizes else sizes[name] + counted
    return GroupSizes(sizes, fixed, places)


def stored_bytes(slices: Iterable[Slice], places: Places) -> list[int] | None:
    """For each partition, the bytes of all rows of streams that it has; None if partitions share a slice.

    It is what is active while no group is spilled, and nothing has to be known of groups for it.
    """
    by_partition = [0] * places.partitions
    for slice_ in slices:
        if slice_.owner.has_rows_of_streams:
            readers = places.readers(slice_)
            if len(readers) > 1:
                return None
            for reader in readers:
                by_partition[reader] += slice_.bytes
    return by_partition


def bytes_per_row(slices: Iterable[Slice], states: Set[StateId]) -> dict[StateId, float]:
    """The bytes of a row of each of these states, index and payload; others need not be looked at."""
    by_state = _by_state(slice_ for slice_ in slices if slice_.owner.state in states)
    sizes = dict.fromkeys(states, 0.0)
    for (_, state), of_state in by_state.items():
        sizes[state] += _bytes_per_row(of_state)
    return sizes


class _Counter:
    """Adds up slices, all of a state at once."""

    def __init__(
        self,
        states: Mapping[StateId, StateCuts],
        slices: Sequence[Slice],
        places: Places,
    ) -> None:
        self.groups = places.groups
        self.places = places
        self.probed = {state: ProbedEpochs.of(cuts) for state, cuts in states.items()}
        self.by_state = _by_state(slices)

    def fragment(self, fragment: Fragment, states: Iterable[StateId]) -> FragmentSizes:
        inputs = [state for state in states if state in fragment.inputs_by_id]
        whole, active, rows, active_rows = self._sums(inputs)
        _, inner, _, _ = self._sums([state for state in states if state not in fragment.inputs_by_id])
        return FragmentSizes(fragment.stage, active + inner, inner, whole, active_rows, rows - active_rows)

    def _sums(
        self, states: Iterable[StateId]
    ) -> tuple[GroupFigures, GroupFigures, GroupFigures, GroupFigures]:
        """The bytes of each group in some states, those that are active, its rows, and those that are."""
        slices = [(state, slice_) for state in states for slice_ in self.by_state.get(("index", state), ())]
        if not slices:
            return (np.zeros(self.groups),) * 4
        payload = {state: self._payload_bytes(state) for state in {state for state, _ in slices}}
        row_bytes = [slice_.bytes / max(1, slice_.rows) + payload[state] for state, slice_ in slices]
        counts = [slice_.group_rows or self._rows_if_even(slice_) for _, slice_ in slices]
        groups, rows = decode_group_counts(b"".join(counts))
        pairs = [count_pairs(each) for each in counts]
        of_row = np.repeat(row_bytes, pairs)

        def sums(figures: GroupFigures) -> GroupFigures:
            return sums_by_group(groups, figures, self.groups)

        whole, all_rows = sums(rows * of_row), sums(rows)
        if not any(state in self.probed for state, _ in slices):
            return whole, whole, all_rows, all_rows
        ends = np.cumsum(pairs)
        active = rows.copy()
        for (state, slice_), start, end in zip(slices, ends - pairs, ends, strict=True):
            if state in self.probed:
                active[start:end] *= self.probed[state].may_probe(slice_)[groups[start:end]]
        return whole, sums(active * of_row), all_rows, sums(active)

    def _payload_bytes(self, state: StateId) -> float:
        return _bytes_per_row(self.by_state.get(("payload", state), ()))

    def _rows_if_even(self, slice_: Slice) -> Counts:
        """For a slice that was written before there was a budget."""
        present = np.flatnonzero(self.places.held(slice_))
        share, rest = divmod(slice_.rows, max(1, len(present)))
        return encode_group_counts(present, share + (np.arange(len(present)) < rest))


def _by_state(slices: Iterable[Slice]) -> dict[tuple[SliceKind, StateId], list[Slice]]:
    """The slices with index rows, and those with payload, by state."""
    by_state: dict[tuple[SliceKind, StateId], list[Slice]] = {}
    for slice_ in slices:
        owner = slice_.owner
        # Results, and aggregates of them, are not in groups of a fragment.
        if owner.has_rows_of_streams:
            kind: SliceKind = "index" if owner.has_index_rows else owner.kind
            by_state.setdefault((kind, owner.state), []).append(slice_)
    return by_state


def _bytes_per_row(slices: Sequence[Slice]) -> float:
    return sum(s.bytes for s in slices) / max(1, sum(s.rows for s in slices))
