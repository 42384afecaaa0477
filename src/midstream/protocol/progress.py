"""Progress: what an epoch took in, gave out, left in state and cost.

The typed form is for listeners. ``to_dict`` gives the JSON form, in which figures that Spark's own progress
has as well go by the same names.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from msgspec import structs

from midstream.engine.link_traffic import LinkName, LinkTraffic
from midstream.engine.program import StreamCounts
from midstream.engine.work import WorkCounts
from midstream.plan.explain import StateSize
from midstream.plan.handover import PlanSide
from midstream.plan.state_id import StateId
from midstream.protocol.event import Event
from midstream.protocol.json_time import iso, show_event_time
from midstream.protocol.memory_progress import MemoryProgress
from midstream.protocol.problems import Problem
from midstream.protocol.replacement_progress import ReplacementProgress
from midstream.protocol.report import Report
from midstream.protocol.trigger_facts import TREND_EPOCHS, Backlog, SourceOffsets, TriggerFacts, backlog_of
from midstream.state.manifest import Manifest, StreamProgress
from midstream.state.slices import Slice


@dataclass(frozen=True)
class QueryIdentity:
    """Which query, and which run of it, a progress is of."""

    id: str
    run_id: str
    name: str | None


@dataclass(frozen=True, kw_only=True)
class SourceProgress:
    """What became of the rows that a stream had in an epoch, and how far the stream has come."""

    rows: int
    """All of them, those below included."""
    late: int
    null_time: int
    null_key: int
    future: int
    idle: bool
    """Whether the stream is idle after the epoch."""
    latest_event_time: int | None
    """The newest event time so far, in microseconds since 1970; None before the first row."""
    input_rows_per_second: float
    processed_rows_per_second: float
    backlog: Backlog | None
    """What its sources had that the epoch did not read; None if they do not say."""
    offsets: tuple[SourceOffsets, ...]
    """What the epoch has read of each source; a stream that is a union has several."""

    def to_dict(self) -> dict[str, Any]:
        """The JSON form."""
        return {
            "rows": self.rows,
            "late": self.late,
            "nullTime": self.null_time,
            "nullKey": self.null_key,
            "future": self.future,
            "idle": self.idle,
            "latestEventTime": show_event_time(self.latest_event_time),
            "inputRowsPerSecond": round(self.input_rows_per_second, 1),
            "processedRowsPerSecond": round(self.processed_rows_per_second, 1),
            "backlog": None if self.backlog is None else self.backlog.to_dict(),
            "offsets": [source.to_dict() for source in self.offsets],
        }


@dataclass(frozen=True, kw_only=True)
class MigrationProgress:
    """The migration that is under way, or ended with the epoch."""

    id: int
    old_plan: str
    new_plan: str
    strategy: str
    start_epoch: int
    phase: str
    """``both plans``, ``ended``, or ``rebuilding {...}`` or ``moving {...}`` with the state in question."""

    def to_dict(self) -> dict[str, Any]:
        """The JSON form."""
        return {
            "id": self.id,
            "from": self.old_plan,
            "to": self.new_plan,
            "strategy": self.strategy,
            "startEpoch": self.start_epoch,
            "phase": self.phase,
        }


@dataclass(frozen=True, kw_only=True)
class EpochProgress:
    """The progress of one committed epoch. The names are those of the JSON form, in snake case."""

    query: QueryIdentity
    timestamp: datetime
    """When the epoch was done."""
    batch_id: int
    """The number of the epoch."""
    plan: str
    num_output_rows: int
    duration_ms: Mapping[str, float]
    """How long the parts of the epoch took on the driver."""
    task_ms: Mapping[str, float]
    """How long the parts of a task took, of the slowest one each."""
    watermark: Mapping[str, int | None]
    """By stream: microseconds since 1970; None before its first row."""
    skew_ms: int | None
    """How far the newest event time of the slowest stream is behind that of the fastest; None, as are the
    names of the two, until all have had a row."""
    slowest_stream: str | None
    fastest_stream: str | None
    sources: Mapping[str, SourceProgress]
    state: Mapping[StateId, StateSize]
    work: WorkCounts
    work_by_plan: Mapping[PlanSide, WorkCounts]
    migration: MigrationProgress | None
    replacement: ReplacementProgress | None = None
    links: Mapping[LinkName, LinkTraffic] = field(default_factory=dict)
    """What went from one site to another, if streams live at sites."""
    memory: MemoryProgress = field(default_factory=MemoryProgress)
    problems: tuple[Problem, ...] = ()
    """What is wrong after the epoch, whether or not an event of this epoch reports it."""
    events: tuple[Event, ...] = ()

    @classmethod
    def of(
        cls,
        query: QueryIdentity,
        manifest: Manifest,
        report: Report,
        *,
        trigger: TriggerFacts,
        duration_ms: Mapping[str, float],
        timestamp: datetime,
        earlier: Sequence[EpochProgress] = (),
    ) -> EpochProgress:
        """The progress of the epoch that ``manifest`` has committed, given what its tasks report.

        ``earlier`` is the progress of epochs before, oldest first, from which trends follow. What is
        about memory, problems and events are added once they are known.
        """
        recent = earlier[-TREND_EPOCHS:]
        skew_ms, slowest, fastest = _skew(manifest.streams)
        took = trigger.seconds_until(timestamp)
        return cls(
            query=query,
            timestamp=timestamp,
            batch_id=manifest.epoch,
            plan=manifest.plan,
            num_output_rows=report.results + (report.successor.results if report.successor else 0),
            duration_ms={"trigger": 1000 * took, **duration_ms},
            task_ms=report.millis,
            watermark={name: stream.watermark for name, stream in manifest.streams.items()},
            skew_ms=skew_ms,
            slowest_stream=slowest,
            fastest_stream=fastest,
            sources={
                name: _source_progress(
                    report.counts.get(name, StreamCounts()),
                    stream,
                    offsets=trigger.sources.get(name, ()),
                    input_seconds=trigger.seconds_since_previous,
                    took=took,
                    earlier=[progress.sources[name].backlog for progress in recent],
                )
                for name, stream in manifest.streams.items()
            },
            state=state_sizes(manifest),
            work=report.work,
            work_by_plan=report.work_by_plan,
            links=report.links,
            migration=_migration_progress(manifest),
            replacement=ReplacementProgress.of(manifest),
        )

    @property
    def num_input_rows(self) -> int:
        """Rows that the sources had."""
        return sum(source.rows for source in self.sources.values())

    @property
    def input_rows_per_second(self) -> float:
        """Rows per second since the trigger before that of the epoch; 0 in the first epoch of a run."""
        return sum(source.input_rows_per_second for source in self.sources.values())

    @property
    def processed_rows_per_second(self) -> float:
        """Rows per second of the time that the epoch took."""
        return sum(source.processed_rows_per_second for source in self.sources.values())

    @property
    def num_late_rows(self) -> int:
        """Rows that were late or had no time."""
        return sum(source.late + source.null_time for source in self.sources.values())

    @property
    def num_future_rows(self) -> int:
        """Rows further ahead than ``maxEventTimeAhead``."""
        return sum(source.future for source in self.sources.values())

    @property
    def num_null_key_rows(self) -> int:
        """Rows with a null key."""
        return sum(source.null_key for source in self.sources.values())

    @property
    def state_bytes_active(self) -> int:
        """Bytes of all states, without those of rows that are not probed because they were spilled."""
        return sum(size.bytes for size in self.state.values()) - self.state_bytes_spilled

    @property
    def state_bytes_spilled(self) -> int:
        """Bytes of rows that are not probed because they were spilled."""
        return self.memory.spilled_bytes

    @property
    def state_bytes_touched(self) -> int:
        """Bytes of the slices that the epoch has opened."""
        return self.memory.touched_bytes

    def to_dict(self) -> dict[str, Any]:
        """The JSON form: keys in camel case, times in ISO 8601, durations in milliseconds."""
        return {
            "id": self.query.id,
            "runId": self.query.run_id,
            "name": self.query.name,
            "timestamp": iso(self.timestamp),
            "batchId": self.batch_id,
            "plan": self.plan,
            "numInputRows": self.num_input_rows,
            "inputRowsPerSecond": round(self.input_rows_per_second, 1),
            "processedRowsPerSecond": round(self.processed_rows_per_second, 1),
            "numOutputRows": self.num_output_rows,
            "numLateRows": self.num_late_rows,
            "numFutureRows": self.num_future_rows,
            "numNullKeyRows": self.num_null_key_rows,
            "durationMs": {name: round(value) for name, value in self.duration_ms.items()},
            "taskMs": {name: round(value, 1) for name, value in self.task_ms.items()},
            "watermark": {name: show_event_time(time) for name, time in self.watermark.items()},
            "skewMs": self.skew_ms,
            "slowestStream": self.slowest_stream,
            "fastestStream": self.fastest_stream,
            "sources": {name: source.to_dict() for name, source in self.sources.items()},
            "state": {
                f"{{{name}}}": {"rows": size.rows, "bytes": size.bytes, "slices": size.slices}
                for name, size in self.state.items()
            },
            "stateBytesActive": self.state_bytes_active,
            "stateBytesSpilled": self.state_bytes_spilled,
            "stateBytesTouched": self.state_bytes_touched,
            "memory": self.memory.to_dict(),
            "work": {
                **_work(self.work),
                "byPlan": {side: _work(work) for side, work in self.work_by_plan.items()},
            },
            "links": {name: structs.asdict(counts) for name, counts in sorted(self.links.items())},
            "migration": None if self.migration is None else self.migration.to_dict(),
            "replacement": None if self.replacement is None else self.replacement.to_dict(),
            "problems": [problem.to_dict() for problem in self.problems],
            "events": [event.to_dict() for event in self.events],
        }


def state_sizes(manifest: Manifest) -> dict[StateId, StateSize]:
    """What each state holds; the payload and the index of a base state count as one."""
    slices: dict[StateId, list[Slice]] = {}
    for slice_ in manifest.slices:
        slices.setdefault(slice_.owner.state, []).append(slice_)
    return {
        state: StateSize(
            # Payload has the same rows as its index.
            rows=sum(slice_.rows for slice_ in of_state if slice_.owner.kind != "payload"),
            bytes=sum(slice_.bytes for slice_ in of_state),
            slices=len(of_state),
        )
        for state, of_state in slices.items()
    }


def _source_progress(
    count: StreamCounts,
    stream: StreamProgress,
    *,
    offsets: tuple[SourceOffsets, ...],
    input_seconds: float | None,
    took: float,
    earlier: Iterable[Backlog | None],
) -> SourceProgress:
    return SourceProgress(
        rows=count.rows,
        late=count.late,
        null_time=count.null_time,
        null_key=count.null_key,
        future=count.future,
        idle=stream.idle,
        latest_event_time=stream.latest,
        input_rows_per_second=0.0 if input_seconds is None else count.rows / input_seconds,
        processed_rows_per_second=count.rows / took,
        backlog=backlog_of(offsets, earlier),
        offsets=offsets,
    )


def _skew(streams: Mapping[str, StreamProgress]) -> tuple[int, str, str] | tuple[None, None, None]:
    """How far apart the newest event times are, and which streams have the oldest and the newest of them."""
    times = {name: stream.latest for name, stream in streams.items() if stream.latest is not None}
    if len(times) < len(streams):
        return None, None, None
    slowest, fastest = min(times, key=times.__getitem__), max(times, key=times.__getitem__)
    return (times[fastest] - times[slowest]) // 1000, slowest, fastest


def _migration_progress(manifest: Manifest) -> MigrationProgress | None:
    migration = manifest.migration or manifest.ended_migration
    if migration is None:
        return None
    moving = [f"moving {{{state.label}}}" for state in migration.moving]
    rebuilding = [f"rebuilding {{{state.label}}}" for state in migration.rebuilding]
    return MigrationProgress(
        id=migration.number,
        old_plan=migration.old_plan,
        new_plan=migration.new_plan,
        strategy=migration.strategy,
        start_epoch=migration.start_epoch,
        phase="ended" if manifest.migration is None else next(iter(rebuilding + moving), "both plans"),
    )


def _work(work: WorkCounts) -> dict[str, int]:
    return {
        "probes": work.probes,
        "candidates": work.candidates,
        "intermediateRows": work.intermediate_rows,
        "comparisons": work.comparisons,
        "insertedRows": work.inserted_rows,
        "sentRows": work.sent_rows,
        "scannedRows": work.scanned_rows,
    }
