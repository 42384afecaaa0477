"""The program of an epoch, and what the partitions report of it.

A program is decided by the coordinator from committed facts only, so running an epoch again runs the same
program. It is everything that a step needs besides the new rows and the slices.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import msgspec
import pyarrow as pa

from midstream.engine.node import WorkDone
from midstream.engine.routing import Routing
from midstream.plan.layout import Layout
from midstream.query.query import Query
from midstream.state.purge import Purge
from midstream.state.slices import Slice, StateKey


@dataclass(frozen=True)
class Program:
    """What every engine partition does in one epoch."""

    epoch: int
    query: Query
    layout: Layout
    routing: Routing
    watermarks: Mapping[str, int | None]
    slices: Mapping[StateKey, tuple[Slice, ...]] = field(default_factory=dict)
    run: str = ""
    began: int | None = None
    """Which run of the query this is, and its first epoch; files of other runs are not trusted unseen."""

    @property
    def purge(self) -> Purge:
        """What has expired before this epoch."""
        return Purge(self.query.windows, self.watermarks)


class InputCount(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What became of the rows of a stream in one partition, or in all."""

    accepted: int = 0
    late: int = 0
    null_time: int = 0
    null_key: int = 0
    latest: int | None = None
    """Largest event time among the accepted rows."""

    def __add__(self, other: InputCount) -> InputCount:
        times = [time for time in (self.latest, other.latest) if time is not None]
        return InputCount(
            self.accepted + other.accepted,
            self.late + other.late,
            self.null_time + other.null_time,
            self.null_key + other.null_key,
            max(times, default=None),
        )

    @property
    def rows(self) -> int:
        """All rows that the source gave."""
        return self.accepted + self.late + self.null_time + self.null_key


@dataclass(frozen=True)
class NewSlice:
    """A slice that is still to be written."""

    slice: Slice
    table: pa.Table


@dataclass(frozen=True)
class StepOutput:
    """What one fragment gave in one engine partition."""

    results: pa.Table | None
    """Results in order of their time, if the fragment is the last."""
    outgoing: tuple[tuple[int, pa.Table], ...]
    """Otherwise: rows for the fragment above, by engine partition."""
    slices: tuple[NewSlice, ...]
    merged: tuple[str, ...]
    """Names of slices that new ones replace."""
    late: Mapping[str, pa.Table]
    """Rows that came too late or without a time, with whatever columns travelled."""
    counts: Mapping[str, InputCount]
    work: WorkDone
