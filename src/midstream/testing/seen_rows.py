"""The rows of slices, each once: if partitions share a hot key, rows of some streams are in all of them."""

from __future__ import annotations

import numpy as np

from midstream.engine.index_rows import IndexRows, in_ranges, merge_rows
from midstream.engine.places import Places
from midstream.migration.lifecycle import layout_of
from midstream.plan.state_id import StateId
from midstream.query.query import Query
from midstream.state.manifest import Manifest
from midstream.state.slices import Slice


def unplaced_states(query: Query, manifest: Manifest) -> frozenset[StateId]:
    """The states of nodes that no key places: all their rows are in one partition, whoever has the groups."""
    layouts = [layout_of(query, manifest.plan, manifest.state_ids)]
    if manifest.migration is not None:
        layouts.append(layout_of(query, manifest.migration.new_plan, manifest.migration.state_ids))
    fragments = (fragment for layout in layouts for fragment in layout.fragments)
    return frozenset(state for f in fragments if not f.key for state in f.arrangements)


def rows_once(places: Places, slice_: Slice, rows: IndexRows) -> IndexRows:
    """The rows of a slice that partitions would have if each had all rows of its keys."""
    gathered = places.spread(places.since + 1, {})
    if not gathered.of_key(slice_.owner.key).has_hot_keys:
        return rows
    parts = [
        rows if ranges is None else in_ranges(rows, *ranges)
        for reader in gathered.readers(slice_)
        for ranges in [gathered.own_ranges(slice_, reader)]
    ]
    return merge_rows(parts) if parts else rows.take(np.zeros(len(rows), np.bool_))
