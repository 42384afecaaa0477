"""The rows of slices, each once: if partitions share a hot key, rows of some streams are in all of them."""

from __future__ import annotations

import numpy as np

from midstream.engine.hashing import group_of
from midstream.engine.index_rows import IndexRows, in_ranges, merge_rows
from midstream.engine.places import Places
from midstream.state.slices import Slice


def rows_once(places: Places, slice_: Slice, rows: IndexRows) -> IndexRows:
    """The rows of a slice that partitions would have if each had all rows of its keys."""
    gathered = places.spread(places.since + 1, {})
    if not gathered.of_key(slice_.owner.key).has_hot_keys:
        return rows
    if not np.all(places.held(slice_)[group_of(rows.hashes, places.groups)]):
        # Of a node that no key places.
        return rows
    parts = [
        rows if ranges is None else in_ranges(rows, *ranges)
        for reader in gathered.readers(slice_)
        for ranges in [gathered.own_ranges(slice_, reader)]
    ]
    return merge_rows(parts) if parts else rows.take(np.zeros(len(rows), np.bool_))
