"""Merging the slices of a state, when there are too many of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pyarrow as pa

from midstream.engine.index_rows import IndexRows, in_time_order, merge_rows
from midstream.engine.payload import merge_payload
from midstream.engine.program import NewSlice, Program
from midstream.state.compaction import choose_merge
from midstream.state.purge import Purge
from midstream.state.slices import Slice, SliceOwner

OpenSlice = Callable[[Slice], pa.Table]


def merge_slices(
    program: Program, new: Sequence[NewSlice], open_slice: OpenSlice
) -> tuple[tuple[NewSlice, ...], tuple[Slice, ...]]:
    """Merge what has become too many, and say which slices that replaces.

    A new slice that merges at once is never written by itself.
    """
    kept: list[NewSlice] = []
    replaced: list[Slice] = []
    # Of what a state gets now, the rows that were missing come first; only the last is the newest.
    last = {fresh.slice.owner: fresh for fresh in new}
    for fresh in new:
        owner = fresh.slice.owner
        chosen: tuple[Slice, ...] = ()
        if owner.kind != "deferred" and last[owner] is fresh:
            chosen = choose_merge((*program.slices.get(owner, ()), fresh.slice))
        if not chosen:
            kept.append(fresh)
            continue
        tables = [fresh.table if s is fresh.slice else open_slice(s) for s in chosen]
        merged = _merge(owner, chosen, tables, program.purge)
        replaced += [s for s in chosen if s is not fresh.slice]
        if merged.slice.rows:
            kept.append(merged)
    return tuple(kept), tuple(replaced)


def _merge(owner: SliceOwner, chosen: Sequence[Slice], tables: Sequence[pa.Table], purge: Purge) -> NewSlice:
    latest = tuple(max(times) for times in zip(*(s.latest for s in chosen), strict=True))
    if owner.kind == "payload":
        table = merge_payload(tables, owner.state.streams, purge)
    else:
        rows = merge_rows([_alive(IndexRows.from_table(t, owner.key), purge) for t in tables])
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


def _alive(rows: IndexRows, purge: Purge) -> IndexRows:
    alive = purge.alive(rows.times)
    return rows if alive.all() else rows.take(alive)
