"""Slices: the immutable files that state is made of.

A slice holds the rows that one state gained in one engine partition from its first to its last epoch. There
are five kinds:

- **index** slices hold sorted index rows (hash, references, times): the whole of an intermediate state, and
  the searchable part of a base state. Sorted by hash means sorted by partition group as well, so a group is a
  range that two binary searches find; no offsets are stored. Rows with a hot key are in the order of the
  first of their times, so a range of times is found in the same way.
- **payload** slices hold the columns that users see, in order of arrival, a run of rows per *segment* (epoch
  and partition). The table of segments is in the file, not here: it grows with the epochs, and the manifest
  must not.
- **deferred** slices hold results that wait for the end of a migration.
- **pending** slices hold index rows of a state that is being rebuilt, or moved in portions. They are not
  searched before the state is complete; then they become index slices.
- **partial** slices hold partial aggregates of results: a row for each pane and group, in the order of their
  panes, and of the hashes of their groups.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from midstream.plan.state_id import StateId

SliceKind = Literal["index", "payload", "deferred", "pending", "partial"]


Counts = bytes
"""Numbers by partition group. A slice has a field ``bytes``, beside which the type cannot be named so."""


class SliceOwner(msgspec.Struct, frozen=True, order=True, forbid_unknown_fields=True):
    """What a slice belongs to: a state, arranged by one key, in one engine partition."""

    kind: SliceKind
    state: StateId
    key: tuple[int, ...]
    partition: int

    @property
    def has_index_rows(self) -> bool:
        """Whether its slices hold index rows, searched now or once the state is complete."""
        return self.kind in ("index", "pending")

    @property
    def is_rerouted_on_merge(self) -> bool:
        """Whether rows go where their groups are now when slices are merged; segments of payload never do."""
        return self.has_index_rows or self.kind == "partial"

    @property
    def has_rows_of_streams(self) -> bool:
        """Whether its slices hold rows that may still join, and expire; others hold results."""
        return self.kind not in ("deferred", "partial")


class Slice(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A slice in the manifest; enough to plan, purge and merge without opening the file."""

    owner: SliceOwner
    first_epoch: int
    last_epoch: int
    """First and last epoch whose rows are in it."""
    epochs: int
    """How many slices of one epoch it was merged from; its level follows from this."""
    rows: int
    latest: tuple[int, ...]
    """Largest event time of each of the state's streams, in the order of the state's id; of partial
    aggregates the beginning of the last pane."""
    name: str = ""
    bytes: int = 0
    sha256: str = ""
    """File name, size and digest; empty until the slice is written."""
    spilled: bool = False
    """Whether all its rows were of spilled groups, before their cuts, when it was merged. It is not merged
    again while groups of its fragment are spilled."""
    group_rows: Counts = b""
    """How many rows of each partition group an index slice has (``engine/group_counts.py``); empty unless it
    was written while there was a budget of memory."""
    placed: int = 0
    """The epoch since which the routing was in force by which its rows were placed (``engine/places.py``)."""
    by_time: bool = False
    """Whether index rows with a hot key are in order of time (``engine/hot_keys.py``).

    Slices of formats before 4 are not, until they are merged.
    """
    earliest: int = 0
    """The beginning of the first pane of partial aggregates."""
