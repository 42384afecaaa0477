"""Slices: the immutable files that state is made of.

A slice holds what one state in one engine partition gained from epoch ``lower`` to epoch ``upper``.
There are three kinds:

- **index** slices hold sorted rows (hash, references, times): the whole of an intermediate state, and the
  searchable part of a base state. Sorted by hash means sorted by partition group as well, so a group is a
  range that two binary searches find; no offsets need storing. Many rows with one hash are in the order of
  the first of their times, so the same goes for times.
- **rows** slices hold payload in order of arrival, a run of it per *segment* (epoch and partition). The
  table of segments is in the file, not here: it grows with the epochs, and the manifest must not.
- **held** slices hold results that wait for the end of a migration.
"""

from __future__ import annotations

from typing import Literal

import msgspec

SliceKind = Literal["index", "rows", "held"]


class StateKey(msgspec.Struct, frozen=True, order=True, forbid_unknown_fields=True):
    """Whose slice it is: a state, in one arrangement, in one engine partition."""

    kind: SliceKind
    state: str
    key: tuple[int, ...]
    partition: int


class Slice(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What the manifest knows of a slice; enough to plan, purge and merge without opening it."""

    owner: StateKey
    lower: int
    upper: int
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
    """Whether an index slice has large groups of rows with one hash in order of time (``engine/hot.py``).

    Slices of earlier versions have not. What is false is left out of manifests, as it was by those versions:
    theirs keep their digests.
    """
