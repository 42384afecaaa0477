"""Sizes of groups: how many bytes of each are active, which means probed, and how many there are in all.

They follow from the slices of a manifest, which say how many rows of each group they have.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from midstream.engine.group_counts import read_groups
from midstream.engine.memory_step import StateCuts
from midstream.engine.places import HOME, Places
from midstream.engine.probed_rows import ProbedRows
from midstream.plan.fragment_name import FragmentName, fragment_name, key_of
from midstream.plan.layout import Fragment, Layout
from midstream.plan.state_id import StateId
from midstream.state.slices import Slice

Figures = npt.NDArray[np.float64]
"""A figure for each group."""


@dataclass(frozen=True)
class FragmentSizes:
    """The sizes of the groups of a fragment, in bytes; rows are those of its inputs."""

    stage: int
    active: Figures
    total: Figures
    active_rows: Figures
    spilled_rows: Figures


@dataclass(frozen=True)
class GroupSizes:
    """The sizes of all groups."""

    fragments: Mapping[FragmentName, FragmentSizes]
    """Of fragments that a key places; others cannot be spilled."""
    fixed: Figures
    """For each partition, the active bytes of fragments that no key places."""
    places: Places

    @cached_property
    def active(self) -> list[float]:
        """For each partition, its active bytes."""
        active = self.fixed.copy()
        for name, fragment in self.fragments.items():
            here = self.places.routing(key_of(name)).partitions
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
            fixed[HOME] += counted.active.sum()
            continue
        name = fragment_name(fragment)
        sizes[name] = counted if name not in sizes else _add(sizes[name], counted)
    return GroupSizes(sizes, fixed, places)


def bytes_per_row(slices: Iterable[Slice]) -> dict[StateId, float]:
    """The bytes of a row of each state, index and payload."""
    sizes: dict[StateId, float] = {}
    for of_owners in _by_state(slices).values():
        for state, of_state in of_owners.items():
            sizes[state] = sizes.get(state, 0.0) + _bytes_per_row(of_state)
    return sizes


class _Counter:
    def __init__(
        self,
        states: Mapping[StateId, StateCuts],
        slices: Sequence[Slice],
        places: Places,
    ) -> None:
        self.groups = places.groups
        self.places = places
        self.probed = {state: ProbedRows.of(cuts) for state, cuts in states.items()}
        by_state = _by_state(slices)
        self.index = by_state["index"]
        self.payload_bytes = {s: _bytes_per_row(of_state) for s, of_state in by_state["payload"].items()}

    def fragment(self, fragment: Fragment, states: Iterable[StateId]) -> FragmentSizes:
        active, total, active_rows, spilled_rows = (np.zeros(self.groups) for _ in range(4))
        for state in states:
            is_input, payload = state in fragment.inputs_by_id, self.payload_bytes.get(state, 0.0)
            of_state = self.index.get(state, [])
            for slice_ in of_state:
                rows = self._rows(slice_)
                row_bytes = _bytes_per_row([slice_]) + payload
                probed = rows * self._is_active(slice_)
                active += row_bytes * probed
                if is_input:
                    total += row_bytes * rows
                    active_rows += probed
                    spilled_rows += rows - probed
        return FragmentSizes(fragment.stage, active, total, active_rows, spilled_rows)

    def _rows(self, slice_: Slice) -> Figures:
        if slice_.group_rows:
            return read_groups(slice_.group_rows, self.groups)
        # It was written before there was a budget.
        here = self.places.held(slice_).astype(np.float64)
        rows: Figures = here * (slice_.rows / max(1.0, float(here.sum())))
        return rows

    def _is_active(self, slice_: Slice) -> npt.NDArray[np.bool_]:
        probed = self.probed.get(slice_.owner.state)
        return np.ones(self.groups, np.bool_) if probed is None else probed.may_probe(slice_)


def _by_state(slices: Iterable[Slice]) -> dict[str, dict[StateId, list[Slice]]]:
    """The slices with index rows, and those with payload, by state."""
    by_state: dict[str, dict[StateId, list[Slice]]] = {"index": {}, "payload": {}}
    # Results, and aggregates of them, are not in groups of a fragment.
    for slice_ in (slice_ for slice_ in slices if slice_.owner.has_rows_of_streams):
        kind = "index" if slice_.owner.has_index_rows else slice_.owner.kind
        by_state[kind].setdefault(slice_.owner.state, []).append(slice_)
    return by_state


def _bytes_per_row(slices: Sequence[Slice]) -> float:
    return sum(s.bytes for s in slices) / max(1, sum(s.rows for s in slices))


def _add(one: FragmentSizes, other: FragmentSizes) -> FragmentSizes:
    return FragmentSizes(
        one.stage,
        one.active + other.active,
        one.total + other.total,
        one.active_rows + other.active_rows,
        one.spilled_rows + other.spilled_rows,
    )
