"""Merging slices of a state by compaction."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import pyarrow as pa
from msgspec.structs import replace

from midstream.engine.group_counts import count_groups
from midstream.engine.index_rows import IndexRows, in_time_order, merge_rows
from midstream.engine.payload import merge_payload
from midstream.engine.program import NewSlice, Program
from midstream.engine.purging import Purging
from midstream.engine.references import epoch_of
from midstream.state.compaction import choose_merge
from midstream.state.slices import Slice, SliceOwner

OpenSlice = Callable[[Slice], pa.Table]


def merge_slices(
    program: Program, new: Sequence[NewSlice], open_slice: OpenSlice
) -> tuple[tuple[NewSlice, ...], tuple[Slice, ...]]:
    """Merge new slices with stored ones where compaction says so; also return the slices that are replaced.

    A new slice that is merged at once is never written by itself.
    """
    to_write: list[NewSlice] = []
    replaced: list[Slice] = []
    # If a state gets several slices, those of missing rows come first; only the last is the newest.
    newest = {new_slice.slice.owner: new_slice for new_slice in new}
    purging = purging_of(program)
    max_bytes = program.memory.max_merged_bytes if program.memory is not None else None
    for new_slice in new:
        owner = new_slice.slice.owner
        chosen: tuple[Slice, ...] = ()
        if owner.kind != "deferred" and newest[owner] is new_slice:
            stored = program.slices.get(owner, ())
            if purging.has_spilled(owner):
                stored = tuple(slice_ for slice_ in stored if not slice_.spilled)
            chosen = choose_merge((*stored, new_slice.slice), max_bytes)
        if not chosen:
            to_write.append(new_slice)
            continue
        tables = [new_slice.table if s is new_slice.slice else open_slice(s) for s in chosen]
        merged = _merge(program, owner, chosen, tables, purging)
        replaced += [s for s in chosen if s is not new_slice.slice]
        to_write += [part for part in merged if part.slice.rows]
    return tuple(to_write), tuple(replaced)


def purging_of(program: Program) -> Purging:
    """Which stored rows are of use from this epoch on."""
    memory = program.memory
    if memory is None:
        return Purging(program.expiry)
    return Purging(program.expiry, memory.states, memory.after.marks, program.routing.partitions)


def count_rows(program: Program, owner: SliceOwner, rows: IndexRows) -> bytes:
    """How many rows of each group a slice has; nothing if it has no index rows, or there is no budget."""
    if program.memory is None or not program.memory.counts_groups or not owner.has_index_rows:
        return b""
    return count_groups(rows.hashes, len(program.routing.partitions))


def _merge(
    program: Program,
    owner: SliceOwner,
    chosen: Sequence[Slice],
    tables: Sequence[pa.Table],
    purging: Purging,
) -> list[NewSlice]:
    if owner.kind == "payload":
        return [_merged_slice(owner, chosen, merge_payload(tables, partial(purging.is_useless, owner)))]
    runs = [IndexRows.from_table(t, owner.key, s) for t, s in zip(tables, chosen, strict=True)]
    rows = merge_rows([purging.useful(run, s) for run, s in zip(runs, chosen, strict=True)])
    spilled = purging.before_cuts(rows, owner)
    if spilled is None or not spilled.any():
        return [_merged_rows(program, owner, chosen, rows)]
    # Rows that are not probed get a slice of their own, so that nobody reads the pages that they are on.
    others = _merged_rows(program, owner, chosen, rows.take(~spilled))
    return [_merged_rows(program, owner, chosen, rows.take(spilled), spilled=True), others]


def _merged_rows(
    program: Program, owner: SliceOwner, chosen: Sequence[Slice], rows: IndexRows, *, spilled: bool = False
) -> NewSlice:
    rows = in_time_order(rows)
    merged = _merged_slice(owner, chosen, rows.to_table())
    description = replace(merged.slice, group_rows=count_rows(program, owner, rows))
    if spilled:
        description = replace(description, spilled=True, last_epoch=_last_epoch(rows))
    return NewSlice(description, merged.table)


def _merged_slice(owner: SliceOwner, chosen: Sequence[Slice], table: pa.Table) -> NewSlice:
    merged = Slice(
        owner=owner,
        first_epoch=min(s.first_epoch for s in chosen),
        last_epoch=max(s.last_epoch for s in chosen),
        epochs=sum(s.epochs for s in chosen),
        rows=table.num_rows,
        latest=tuple(max(times) for times in zip(*(s.latest for s in chosen), strict=True)),
        by_time=owner.has_index_rows,
    )
    return NewSlice(merged, table)


def _last_epoch(rows: IndexRows) -> int:
    return max(int(epoch_of(references).max()) for references in rows.references.values())
