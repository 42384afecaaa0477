"""The program of an epoch, and what the partitions report of it.

A program is decided by the coordinator from committed facts only, so running an epoch again runs the same
program. It is everything that a step needs besides the new rows and the slices.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import msgspec
import pyarrow as pa

from midstream.engine.encode import RoutedRows
from midstream.engine.epoch_filter import EpochRange
from midstream.engine.joiner import WorkCounts
from midstream.engine.key_sample import KeyCounts, Sampling
from midstream.engine.routing import Routing
from midstream.plan.layout import Bounds, Layout, Side, StateId
from midstream.query.query import Query
from midstream.state.migration import Migration
from midstream.state.purge import Purge
from midstream.state.slices import Slice, StateKey


@dataclass(frozen=True, slots=True)
class Move:
    """A state that begins with the rows of another, which may lie in other partitions."""

    source: StateId
    target: StateId


@dataclass(frozen=True, slots=True)
class Rebuild:
    """Rows that a state lacks, to be computed from the states of its node's inputs."""

    state: StateId
    bounds: tuple[Bounds, ...]
    """Which rows it lacks."""
    epoch_range: EpochRange | None = None
    """Which of them now; None for all at once. Those of a piece wait until all are there."""


@dataclass(frozen=True)
class MigrationStep:
    """What an epoch does about plans, and what holds of them after it."""

    layout: Layout
    """The layout of the plan, or of both plans of a migration."""
    plan: str
    states: Mapping[StateId, StateId]
    """The ids of the plan's states, where they are not just their streams."""
    migration: Migration | None = None
    ended: Migration | None = None
    """The migration that is over with this epoch."""
    begins: bool = False
    """Whether a migration begins with this epoch."""
    moved_from: Layout | None = None
    """The layout in which the sources of moves are."""
    moves: tuple[Move, ...] = ()
    rebuilds: tuple[Rebuild, ...] = ()
    finishes: StateId | None = None
    """The state that lacks nothing any more once the rebuilds are done."""
    holds: bool = False
    """Whether results of the new plan wait for the end of the migration."""
    releases: bool = False
    """Whether results that have waited come out now."""


@dataclass(frozen=True)
class Writer:
    """Who runs an epoch. It decides how files are called and which are trusted, never what is in them."""

    query: str = ""
    """The id of the query: its slices carry it."""
    lease: int = 0
    """The lease under which the epoch runs: names of slices begin with it."""
    run: str = ""
    """Names the run of the query, for what a process remembers between its epochs."""
    written: frozenset[str] = frozenset()
    """Slices that tasks of this run have reported; all others are verified before they are used."""


@dataclass(frozen=True)
class Program:
    """What every engine partition does in one epoch."""

    epoch: int
    query: Query
    routing: Routing
    watermarks: Mapping[str, int | None]
    course: MigrationStep
    slices: Mapping[StateKey, tuple[Slice, ...]] = field(default_factory=dict)
    sampling: Mapping[str, Sampling] = field(default_factory=dict)
    """Which keys are counted, by the streams' key columns."""
    latest_accepted: Mapping[str, int | None] = field(default_factory=dict)
    """The latest event time that a row of each stream may have; one beyond it comes from the future."""
    writer: Writer = Writer()

    @property
    def layout(self) -> Layout:
        """Which nodes run where."""
        return self.course.layout

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
    bytes: int = 0
    """What the accepted rows take."""
    future: int = 0
    """Rows whose event time lies further ahead than a stream may be."""

    def __add__(self, other: InputCount) -> InputCount:
        times = [time for time in (self.latest, other.latest) if time is not None]
        return InputCount(
            self.accepted + other.accepted,
            self.late + other.late,
            self.null_time + other.null_time,
            self.null_key + other.null_key,
            max(times, default=None),
            self.bytes + other.bytes,
            self.future + other.future,
        )

    @property
    def rows(self) -> int:
        """All rows that the source gave."""
        return self.accepted + self.late + self.null_time + self.null_key + self.future


@dataclass(frozen=True)
class NewSlice:
    """A slice that is still to be written."""

    slice: Slice
    table: pa.Table


@dataclass(frozen=True)
class StepOutput:
    """What one fragment gave in one engine partition."""

    results: pa.Table | None
    """Results in order of their time, if the fragment makes any."""
    outgoing: tuple[RoutedRows, ...]
    """Rows for other fragments."""
    slices: tuple[NewSlice, ...]
    merged: tuple[Slice, ...]
    """Slices that new ones replace."""
    late: Mapping[str, pa.Table]
    """Rows that came too late or without a time, with whatever columns travelled."""
    counts: Mapping[str, InputCount]
    work: Mapping[Side, WorkCounts]
    keys: Mapping[str, KeyCounts]
    """Samples of the keys of new rows, by the streams' key columns."""
    made: Mapping[StateId, int]
    """Rows that each node has made."""
