"""Slices: the immutable files that state is made of.

A slice holds what one state in one engine partition gained from its first to its last epoch. There are four
kinds:

- **index** slices hold sorted index rows (hash, references, times): the whole of an intermediate state, and
  the searchable part of a base state. Sorted by hash means sorted by partition group as well, so a group is a
  range that two binary searches find; no offsets need storing. Many rows with one hash are in the order of
  the first of their times, so the same goes for times.
- **payload** slices hold the columns that users see, in order of arrival, a run of rows per *segment* (epoch
  and partition). The table of segments is in the file, not here: it grows with the epochs, and the manifest
  must not.
- **deferred** slices hold results that wait for the end of a migration.
- **pending** slices hold index rows of a state that is being rebuilt. Nobody searches them before the
  rebuild is complete; then they become index slices.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from midstream.plan.state_id import StateId

SliceKind = Literal["index", "payload", "deferred", "pending"]


class SliceOwner(msgspec.Struct, frozen=True, order=True, forbid_unknown_fields=True):
    """Whose slice it is: a state's, arranged by one key, in one engine partition."""

    kind: SliceKind
    state: StateId
    key: tuple[int, ...]
    partition: int

    @property
    def has_index_rows(self) -> bool:
        """Whether its slices hold index rows, searched now or once the state is complete."""
        return self.kind in ("index", "pending")


class Slice(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What the manifest knows of a slice; enough to plan, purge and merge without opening it."""

    owner: SliceOwner
    first_epoch: int
    last_epoch: int
    """First and last epoch whose rows are in it."""
    epochs: int
    """How many slices of one epoch went into it; decides with which neighbours it merges."""
    rows: int
    latest: tuple[int, ...]
    """Largest event time of each of the state's streams, in the order of the state's id."""
    name: str = ""
    bytes: int = 0
    sha256: str = ""
    """File name, size and digest; empty until the slice is written."""
    by_time: bool = False
    """Whether many index rows with one hash are in order of time (``engine/hot_keys.py``).

    Slices that formats before 4 wrote are not, until they have merged.
    """
