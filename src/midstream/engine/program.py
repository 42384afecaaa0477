"""The program of an epoch, which is the input of a step, and the output of a step.

The coordinator makes a program from the last manifest and the intent only, so an epoch that runs again runs
the same program. It is everything that a step needs besides the new rows and the slices.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

import msgspec
import pyarrow as pa

from midstream.engine.aggregate_step import AggregateStep
from midstream.engine.epoch_filter import EpochSpan
from midstream.engine.event_times import TimeRange
from midstream.engine.key_sample import KeyCounts, Sampling
from midstream.engine.memory_step import MemoryStep
from midstream.engine.migration_step import MigrationStep
from midstream.engine.places import Places
from midstream.engine.result_time_range import ResultTimeRange
from midstream.engine.routed_rows import RoutedRows
from midstream.engine.spill_retention import SpillRetention
from midstream.engine.work import WorkCounts
from midstream.plan.fragment_name import FragmentName
from midstream.plan.handover import Handover, PlanSide
from midstream.plan.layout import Fragment, Key, Layout
from midstream.plan.state_id import StateId
from midstream.query.query import Query
from midstream.state.balance import Balance
from midstream.state.expiry import Expiry
from midstream.state.manifest import OutputTableName, Replacement
from midstream.state.slices import Slice, SliceKind, SliceOwner
from midstream.state.window_change import WindowChange


@dataclass(frozen=True)
class RunIdentity:
    """Who runs an epoch. This decides the names of files and which are trusted, never their content."""

    query: str = ""
    """The id of the query, which its slices carry."""
    lease: int = 0
    """The number of the lease under which the epoch runs; names of slices begin with it."""
    run: str = ""
    """The id of the run, for what a process caches between the epochs of a run."""
    written: frozenset[str] = frozenset()
    """Slices that tasks of this run have written; all others are verified before they are used."""


@dataclass(frozen=True)
class Program:
    """What every engine partition does in one epoch, and the slices of some partitions or of all."""

    epoch: int
    query: Query
    places: Places
    watermarks: Mapping[str, int | None]
    layout: Layout
    """Where the nodes of the plan run, during a migration those of both plans."""
    migration_step: MigrationStep | None = None
    """The migration's part of the epoch, if one is in progress."""
    memory: MemoryStep | None = None
    """What the epoch does about memory; None if no group is spilled, and none was."""
    balance: Balance = field(default_factory=Balance)
    """What was done about balance, until and with the epoch."""
    aggregation: AggregateStep | None = None
    """What the epoch does about aggregates, if the query has any."""
    slices: Mapping[SliceOwner, tuple[Slice, ...]] = field(default_factory=dict)
    sampling: Mapping[str, Sampling] = field(default_factory=dict)
    """Which keys are counted, by the streams' key columns."""
    window_changes: tuple[WindowChange, ...] = ()
    """The changes of the windows that rows from before them are still joined by."""
    latest_allowed: Mapping[str, int | None] = field(default_factory=dict)
    """The latest event time that a row of each stream may have; a later one is from the future."""
    result_range: ResultTimeRange | None = None
    """Which results leave, if another box runs beside this one; None for all."""
    withheld_streams: frozenset[str] = frozenset()
    """The streams of which it gets no rows that arrive: it is catching up, and will get them replayed."""
    output_table: OutputTableName = "results"
    """The table of its results."""
    output_path: str = ""
    """Where that is, if it is that of a new box."""
    late_rows_elsewhere: frozenset[str] = frozenset()
    """The streams whose late rows are kept by another box."""
    fragment_offset: int = 0
    """The number of its first fragment in the names of files, which are those of both boxes."""
    replay: Replay | None = None
    """Rows that it gets from the box that it replaces."""
    replacement: ReplacementStep | None = None
    """Of the old box: the replacement's part of the epoch, if one is in progress."""
    run: RunIdentity = RunIdentity()

    @property
    def successor(self) -> Program | None:
        """What the new box does in the epoch, if there is one beside this."""
        return None if self.replacement is None else self.replacement.program

    @property
    def is_idle(self) -> bool:
        """Whether it is that of a box that catches up, and gets nothing in this epoch."""
        return self.replay is None and self.withheld_streams >= set(self.query.names)

    @property
    def sending_partition_count(self) -> int:
        """In how many partitions there may be rows to move or to replay before the first stage."""
        own, replay = self.places.partitions, self.replay
        return own if replay is None else max(own, replay.source.places.partitions)

    def run_by(self, run: RunIdentity) -> Program:
        """The program of an epoch that is run by someone, with that of the new box."""
        step = self.replacement
        program = None if step is None or step.program is None else step.program.run_by(run)
        replay = None if self.replay is None else replace(self.replay, source=self.replay.source.run_by(run))
        step = None if step is None else replace(step, program=program)
        return replace(self, run=run, replay=replay, replacement=step)

    def with_slices(self, slices: Iterable[Slice], written: Iterable[str]) -> Program:
        """The program with other slices, those of some partitions; the run has written the named ones."""
        owned: dict[SliceOwner, list[Slice]] = {}
        for slice_ in slices:
            owned.setdefault(slice_.owner, []).append(slice_)
        by_owner = {owner: tuple(each) for owner, each in owned.items()}
        return replace(self, slices=by_owner, run=replace(self.run, written=frozenset(written)))

    def readable(self, kind: SliceKind, state: StateId, key: Key, partition: int) -> list[Slice]:
        """The slices of a state in which a partition may have rows, its own and those of others."""
        sources = self.places.sources(partition, key, state.site)
        owners = (SliceOwner(kind, state, key, source) for source in sources)
        return [
            slice_
            for owner in owners
            for slice_ in self.slices.get(owner, ())
            if partition in self.places.readers(slice_)
        ]

    @property
    def handover(self) -> Handover | None:
        """How the two plans of the layout divide the rows; None if there is only one."""
        return None if self.migration_step is None else self.migration_step.handover

    @property
    def collector(self) -> Fragment | None:
        """The fragment that results of another fragment are sent to, so that all leave in one order.

        Results that are aggregated are so where they are made. At sites all results leave from the sink.
        """
        if self.aggregation is not None:
            return None
        if self.layout.sink is not None:
            return self.layout.sink
        *others, last = self.layout.result_fragments
        # If one of the plans has its results deferred, only the other one's leave.
        defers = self.migration_step is not None and self.migration_step.defers_results
        return last if others and not defers else None

    @property
    def fragments(self) -> tuple[Fragment, ...]:
        """All that runs: the fragments of the layout, and the one that merges aggregates."""
        if self.aggregation is None:
            return self.layout.fragments
        return (*self.layout.fragments, self.aggregation.fragment)

    @property
    def stages(self) -> int:
        """How many stages run after the sources are read."""
        return self.layout.stages + (self.aggregation is not None)

    def results_complete_in(self, fragment: Fragment) -> bool:
        """Whether results of the join are not sent on from a fragment to another one, in which all are."""
        collector = self.collector
        return fragment in self.layout.result_fragments if collector is None else fragment == collector

    def collecting_partition(self, partition: int) -> int:
        """The partition that results of a partition leave from: the same, or one at the sink."""
        sink = self.layout.sink
        if sink is None or self.places.runs_at(partition, sink.site):
            return partition
        at_sink = self.places.partitions_at[sink.site]
        return at_sink[partition % len(at_sink)]

    def results_leave_from(self, fragment: Fragment) -> bool:
        """Whether what comes out is staged where a fragment runs."""
        if self.aggregation is not None:
            return fragment == self.aggregation.fragment
        return self.results_complete_in(fragment)

    @cached_property
    def expiry(self) -> Expiry:
        """Which rows have expired before this epoch."""
        holds = self.memory.holds if self.memory is not None else ()
        return Expiry(self.query.windows, self.watermarks, self.window_changes, holds)

    @cached_property
    def retention(self) -> SpillRetention:
        """Which stored rows are of use from this epoch on."""
        if self.memory is None:
            return SpillRetention(self.expiry)
        return SpillRetention(self.expiry, self.memory.states, self.memory.after.marks, self.places)


@dataclass(frozen=True)
class Replay:
    """The rows of some streams that an old box has stored in some epochs."""

    source: Program
    """What the old box does in this epoch, with the slices that it has."""
    streams: tuple[str, ...]
    epochs: EpochSpan


@dataclass(frozen=True, kw_only=True)
class ReplacementStep:
    """One epoch of a replacement."""

    replacement: Replacement
    """The replacement while the epoch runs; its new box is as it was before."""
    program: Program | None
    """What the new box does; None if it runs alone from now on."""
    begins: bool = False
    """Whether this is its first epoch."""


class StreamCounts(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How many rows of a stream were accepted or dropped, in one partition or in all."""

    accepted: int = 0
    late: int = 0
    null_time: int = 0
    null_key: int = 0
    latest: int | None = None
    """Largest event time among the accepted rows."""
    bytes: int = 0
    """The size of the accepted rows."""
    future: int = 0
    """Rows that are further ahead of the clock than allowed."""
    ranges: tuple[TimeRange, ...] = ()
    """The event times of most accepted rows, in each partition."""

    def __add__(self, other: StreamCounts) -> StreamCounts:
        times = [time for time in (self.latest, other.latest) if time is not None]
        return StreamCounts(
            accepted=self.accepted + other.accepted,
            late=self.late + other.late,
            null_time=self.null_time + other.null_time,
            null_key=self.null_key + other.null_key,
            latest=max(times, default=None),
            bytes=self.bytes + other.bytes,
            future=self.future + other.future,
            ranges=self.ranges + other.ranges,
        )

    @property
    def rows(self) -> int:
        """All rows that the source delivered."""
        return self.accepted + self.late + self.null_time + self.null_key + self.future


@dataclass(frozen=True)
class NewSlice:
    """A slice that is still to be written."""

    slice: Slice
    table: pa.Table


@dataclass(frozen=True)
class StepOutput:
    """The output of one fragment in one engine partition."""

    results: pa.Table | None
    """Results in order of time, if any leave from the fragment."""
    outgoing: tuple[RoutedRows, ...]
    """Rows for other fragments."""
    slices: tuple[NewSlice, ...]
    replaced: tuple[Slice, ...]
    """Slices that new ones replace."""
    late: Mapping[str, pa.Table]
    """Rows that were set aside, of each stream, with the columns that were sent."""
    counts: Mapping[str, StreamCounts]
    work: Mapping[PlanSide, WorkCounts]
    keys: Mapping[str, KeyCounts]
    """Counts of sampled keys of new rows, by the streams' key columns."""
    produced: Mapping[StateId, int]
    """How many rows the nodes have produced for each state."""
    flows: Mapping[FragmentName, bytes] = field(default_factory=dict)
    """From which groups, and to which, rows have left the fragment, if there is a budget of memory."""
