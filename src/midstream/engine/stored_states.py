"""The stored states of a fragment as one engine partition has them: its rows, in whatever slices they are."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property

import pyarrow as pa

from midstream.engine.index_rows import IndexRows, in_ranges, in_time_order
from midstream.engine.joiner import SliceFilter
from midstream.engine.merge_slices import OpenSlice
from midstream.engine.program import Program
from midstream.plan.layout import Fragment, Key
from midstream.plan.state_id import StateId
from midstream.state.slices import Slice, SliceKind


class StoredStates:
    """Opens the slices of a fragment in which a partition has rows, its own and those of others."""

    def __init__(self, program: Program, fragment: Fragment, partition: int, open_slice: OpenSlice) -> None:
        self._program = program
        self._partition = partition
        self._open_slice = open_slice
        self._key = fragment.key
        self._is_placed = bool(fragment.key)
        self._home = program.places.home(fragment.site)
        self._inserted: dict[tuple[StateId, Key], list[IndexRows]] = {}
        self._runs: dict[tuple[str, Key], IndexRows] = {}
        """The rows of slices, by their names and keys: several nodes may search the same. Slices of two keys
        have one name if they have the same content."""

    @cached_property
    def groups(self) -> list[int]:
        """The groups of the partition."""
        return self._program.places.groups_of(self._partition, self._key)

    def insert(self, state: StateId, key: Key, rows: IndexRows) -> None:
        """Add rows that the state lacked; they are this partition's."""
        self._inserted.setdefault((state, key), []).append(rows)

    def runs(self, state: StateId, key: Key, is_needed: SliceFilter) -> list[IndexRows]:
        """The sorted runs of a state to be searched for rows of groups of this partition.

        They may have rows of other groups, which have other hashes.
        """
        stored = [self._run(slice_) for slice_ in self.slices("index", state, key) if is_needed(slice_)]
        # Rows are inserted only if they are live, also by what held before the windows changed.
        return [*stored, *self._inserted.get((state, key), ())]

    def own_rows(self, state: StateId, key: Key, is_needed: SliceFilter) -> list[IndexRows]:
        """The same, but only rows of this partition, to be scanned."""
        return [self.own_part(run) for run in self.runs(state, key, is_needed)]

    def own_part(self, run: IndexRows) -> IndexRows:
        """The rows of a run that this partition has; of the others nothing is read."""
        if not self._is_placed or run.stored_in is None:
            return run
        ranges = self._program.places.own_ranges(run.stored_in, self._partition)
        return run if ranges is None else in_ranges(run, *ranges)

    def open(self, kind: SliceKind, state: StateId, key: Key) -> Iterator[pa.Table]:
        """The tables of slices."""
        return (self._open_slice(slice_) for slice_ in self.slices(kind, state, key))

    def payload(self, state: StateId, key: Key, new: Sequence[pa.Table]) -> list[pa.Table]:
        """The payload of an input, stored and new."""
        return [*self.open("payload", state, key), *new]

    def slices(self, kind: SliceKind, state: StateId, key: Key) -> list[Slice]:
        """The slices in which the partition may have rows, oldest first."""
        if not self._is_placed and kind != "deferred" and self._partition != self._home:
            return []
        found = self._program.readable(kind, state, key, self._partition)
        return sorted(found, key=lambda slice_: slice_.first_epoch)

    def _run(self, slice_: Slice) -> IndexRows:
        name, key = slice_.name, slice_.owner.key
        if (name, key) not in self._runs:
            rows = IndexRows.from_table(self._open_slice(slice_), key, slice_)
            # Slices of formats before 4 are not in this order until they are merged.
            self._runs[name, key] = rows if slice_.by_time else in_time_order(rows)
        return self._runs[name, key]
