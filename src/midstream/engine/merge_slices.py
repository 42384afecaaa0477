"""Merging slices of a state by compaction."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

import pyarrow as pa
from msgspec.structs import replace

from midstream.engine.group_counts import count_groups
from midstream.engine.index_rows import IndexRows, in_ranges, in_time_order, merge_rows
from midstream.engine.payload import merge_payload
from midstream.engine.program import NewSlice, Program
from midstream.engine.references import epoch_of
from midstream.engine.spill_retention import SpillRetention
from midstream.state.compaction import choose_merge, epochs_of
from midstream.state.slices import Slice, SliceOwner

OpenSlice = Callable[[Slice], pa.Table]


def merge_slices(
    program: Program, new: Sequence[NewSlice], open_slice: OpenSlice, *, is_placed: bool
) -> tuple[tuple[NewSlice, ...], tuple[Slice, ...]]:
    """Merge new slices with stored ones where compaction says so; also return the slices that are replaced.

    A new slice that is merged at once is never written by itself. If ``is_placed``, a key says in which
    partition rows are; otherwise all rows of the states are in one.
    """
    to_write: list[NewSlice] = []
    replaced: list[Slice] = []
    # If a state gets several slices, those of missing rows come first; only the last is the newest.
    newest = {new_slice.slice.owner: new_slice for new_slice in new}
    retention = program.retention
    max_bytes = program.memory.max_merged_bytes if program.memory is not None else None
    for new_slice in new:
        owner = new_slice.slice.owner
        chosen: tuple[Slice, ...] = ()
        if owner.kind != "deferred" and newest[owner] is new_slice:
            mergeable = _mergeable(program, owner, retention)
            chosen = choose_merge((*mergeable, new_slice.slice), max_bytes)
        if not chosen:
            to_write.append(new_slice)
            continue
        tables = [new_slice.table if s is new_slice.slice else open_slice(s) for s in chosen]
        merged = _merge(program, owner, chosen, tables, retention, is_placed=is_placed)
        replaced += [s for s in chosen if s is not new_slice.slice]
        to_write += [part for part in merged if part.slice.rows]
    return tuple(to_write), tuple(replaced)


def _mergeable(program: Program, owner: SliceOwner, retention: SpillRetention) -> Iterator[Slice]:
    """The stored slices of a state that this partition merges."""
    places = program.places
    for slice_ in program.readable(owner.kind, owner.state, owner.key, owner.partition):
        stays = slice_.spilled and retention.has_spilled(slice_.owner)
        if not stays and places.may_merge(slice_) and places.keeper(slice_) == owner.partition:
            yield slice_


def count_rows(program: Program, owner: SliceOwner, rows: IndexRows) -> bytes:
    """How many rows of each group a slice has; nothing if it has no index rows, or there is no budget."""
    if program.memory is None or not program.memory.counts_groups or not owner.has_index_rows:
        return b""
    return count_groups(rows.hashes, program.places.groups)


def _merge(
    program: Program,
    owner: SliceOwner,
    chosen: Sequence[Slice],
    tables: Sequence[pa.Table],
    retention: SpillRetention,
    *,
    is_placed: bool,
) -> list[NewSlice]:
    since = program.places.since
    if owner.kind == "payload":
        useless = [partial(retention.is_useless, slice_.owner) for slice_ in chosen]
        return [_merged_slice(owner, chosen, merge_payload(tables, useless), since)]
    runs = [
        retention.useful(IndexRows.from_table(t, owner.key, s), s)
        for t, s in zip(tables, chosen, strict=True)
    ]
    merged = []
    for partition, rows in _by_partition(program, owner.partition, runs, is_placed=is_placed):
        merged += _merged_part(program, replace(owner, partition=partition), chosen, rows, retention)
    return merged


def _by_partition(
    program: Program, partition: int, runs: Sequence[IndexRows], *, is_placed: bool
) -> Iterator[tuple[int, IndexRows]]:
    """The rows of the slices that a partition merges, by the partitions that have them now."""
    places = program.places
    stored = [run.stored_in for run in runs if run.stored_in is not None]
    if not is_placed or all(places.own_ranges(slice_, partition) is None for slice_ in stored):
        yield partition, merge_rows(runs)
        return
    for reader in sorted({partition}.union(*map(places.readers, stored))):
        parts = [
            run if ranges is None else in_ranges(run, *ranges)
            for run, slice_ in zip(runs, stored, strict=True)
            if reader in places.readers(slice_)
            for ranges in [places.own_ranges(slice_, reader)]
        ]
        if any(map(len, parts)):
            yield reader, merge_rows(parts)


def _merged_part(
    program: Program, owner: SliceOwner, chosen: Sequence[Slice], rows: IndexRows, retention: SpillRetention
) -> list[NewSlice]:
    spilled = retention.before_cuts(rows, owner)
    if spilled is None or not spilled.any():
        return [_merged_rows(program, owner, chosen, rows)]
    # Rows that are not probed get a slice of their own, so that nobody reads the pages that they are on.
    others = _merged_rows(program, owner, chosen, rows.take(~spilled))
    return [_merged_rows(program, owner, chosen, rows.take(spilled), spilled=True), others]


def _merged_rows(
    program: Program, owner: SliceOwner, chosen: Sequence[Slice], rows: IndexRows, *, spilled: bool = False
) -> NewSlice:
    rows = in_time_order(rows)
    merged = _merged_slice(owner, chosen, rows.to_table(), program.places.since)
    description = replace(merged.slice, group_rows=count_rows(program, owner, rows))
    if spilled:
        description = replace(description, spilled=True, last_epoch=_last_epoch(rows))
    return NewSlice(description, merged.table)


def _merged_slice(owner: SliceOwner, chosen: Sequence[Slice], table: pa.Table, placed: int) -> NewSlice:
    merged = Slice(
        owner=owner,
        first_epoch=min(s.first_epoch for s in chosen),
        last_epoch=max(s.last_epoch for s in chosen),
        epochs=epochs_of(chosen),
        rows=table.num_rows,
        latest=tuple(max(times) for times in zip(*(s.latest for s in chosen), strict=True)),
        placed=placed,
        by_time=owner.has_index_rows,
    )
    return NewSlice(merged, table)


def _last_epoch(rows: IndexRows) -> int:
    return max(int(epoch_of(references).max()) for references in rows.references.values())
