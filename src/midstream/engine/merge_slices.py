"""Merging slices of a state by compaction."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pyarrow as pa

from midstream.engine.index_rows import IndexRows, in_time_order, merge_rows
from midstream.engine.payload import merge_payload
from midstream.engine.program import NewSlice, Program
from midstream.state.compaction import choose_merge
from midstream.state.expiry import Expiry
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
    for new_slice in new:
        owner = new_slice.slice.owner
        chosen: tuple[Slice, ...] = ()
        if owner.kind != "deferred" and newest[owner] is new_slice:
            chosen = choose_merge((*program.slices.get(owner, ()), new_slice.slice))
        if not chosen:
            to_write.append(new_slice)
            continue
        tables = [new_slice.table if s is new_slice.slice else open_slice(s) for s in chosen]
        merged = _merge(owner, chosen, tables, program.expiry)
        replaced += [s for s in chosen if s is not new_slice.slice]
        if merged.slice.rows:
            to_write.append(merged)
    return tuple(to_write), tuple(replaced)


def _merge(
    owner: SliceOwner, chosen: Sequence[Slice], tables: Sequence[pa.Table], expiry: Expiry
) -> NewSlice:
    latest = tuple(max(times) for times in zip(*(s.latest for s in chosen), strict=True))
    if owner.kind == "payload":
        table = merge_payload(tables, owner.state.streams, expiry)
    else:
        runs = [IndexRows.from_table(table, owner.key) for table in tables]
        rows = merge_rows([alive_rows(run, s, expiry) for run, s in zip(runs, chosen, strict=True)])
        table = in_time_order(rows).to_table()
    merged = Slice(
        owner=owner,
        first_epoch=min(s.first_epoch for s in chosen),
        last_epoch=max(s.last_epoch for s in chosen),
        epochs=sum(s.epochs for s in chosen),
        rows=table.num_rows,
        latest=latest,
        by_time=owner.has_index_rows,
    )
    return NewSlice(merged, table)


def alive_rows(rows: IndexRows, slice_: Slice, expiry: Expiry) -> IndexRows:
    """The rows of a slice that have not expired."""
    alive = expiry.is_live(rows.times, slice_.last_epoch)
    return rows if alive.all() else rows.take(alive)
