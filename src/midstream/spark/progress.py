"""Progress: one plain dictionary per epoch, JSON-ready, in the manner of Spark's own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from midstream.engine.program import InputCount
from midstream.engine.work import WorkCounts
from midstream.plan.explain import StateSize
from midstream.plan.state_id import StateId
from midstream.protocol.events import Event
from midstream.protocol.report import Report
from midstream.state.manifest import Manifest, StreamProgress


def state_sizes(manifest: Manifest) -> dict[StateId, StateSize]:
    """What each state holds; a base state counts its payload and its index as one."""
    sizes: dict[StateId, StateSize] = {}
    for slice_ in manifest.slices:
        size = sizes.get(slice_.owner.state, StateSize())
        # Payload has the same rows as its index.
        rows = 0 if slice_.owner.kind == "payload" else slice_.rows
        sizes[slice_.owner.state] = StateSize(size.rows + rows, size.bytes + slice_.bytes, size.slices + 1)
    return sizes


def describe_epoch(
    identity: Mapping[str, str | None],
    manifest: Manifest,
    report: Report,
    events: Sequence[Event],
    millis: Mapping[str, float],
    now: datetime,
) -> dict[str, Any]:
    """The progress of an epoch that was just committed."""
    sizes = state_sizes(manifest)
    counts = report.counts
    return {
        **identity,
        "timestamp": _iso(now),
        "batchId": manifest.epoch,
        "plan": manifest.plan,
        "numInputRows": sum(count.rows for count in counts.values()),
        "numOutputRows": report.results,
        "numLateRows": sum(count.late + count.null_time for count in counts.values()),
        "numFutureRows": sum(count.future for count in counts.values()),
        "numNullKeyRows": sum(count.null_key for count in counts.values()),
        "durationMs": {name: round(value) for name, value in millis.items()},
        "taskMs": {name: round(value, 1) for name, value in report.millis.items()},
        "watermark": {name: _time(mark.watermark) for name, mark in manifest.streams.items()},
        "skewMs": _skew(manifest.streams.values()),
        "sources": {
            name: _source(counts.get(name, InputCount()), mark) for name, mark in manifest.streams.items()
        },
        "state": {
            f"{{{name}}}": {"rows": size.rows, "bytes": size.bytes, "slices": size.slices}
            for name, size in sizes.items()
        },
        "stateBytesActive": sum(size.bytes for size in sizes.values()),
        "stateBytesSpilled": 0,
        "work": {
            **_work(report.work),
            "byPlan": {side: _work(done) for side, done in report.work_by_plan.items()},
        },
        "migration": _migration(manifest),
        "events": list(events),
    }


def _work(done: WorkCounts) -> dict[str, int]:
    return {
        "probes": done.probes,
        "candidates": done.candidates,
        "intermediateRows": done.intermediate_rows,
        "comparisons": done.comparisons,
        "insertedRows": done.inserted,
        "sentRows": done.sent,
    }


def _migration(manifest: Manifest) -> dict[str, Any] | None:
    """The migration that is under way, or was over with this epoch."""
    migration = manifest.migration or manifest.ended_migration
    if migration is None:
        return None
    computing = [f"computing {{{state.label}}}" for state in migration.rebuilding]
    return {
        "id": migration.number,
        "from": migration.old_plan,
        "to": migration.new_plan,
        "strategy": migration.strategy,
        "startEpoch": migration.start_epoch,
        "phase": "ended" if manifest.migration is None else next(iter(computing), "both plans"),
    }


def _skew(marks: Iterable[StreamProgress]) -> int | None:
    """How far the event time of the slowest stream is behind that of the fastest."""
    times = [mark.latest for mark in marks]
    known = [time for time in times if time is not None]
    return (max(known) - min(known)) // 1000 if len(known) == len(times) else None


def _source(count: InputCount, mark: StreamProgress) -> dict[str, Any]:
    return {
        "rows": count.rows,
        "late": count.late,
        "nullTime": count.null_time,
        "nullKey": count.null_key,
        "future": count.future,
        "idle": mark.idle,
    }


def _time(micros: int | None) -> str | None:
    if micros is None:
        return None
    seconds, rest = divmod(micros, 1_000_000)
    try:
        return _iso(datetime.fromtimestamp(seconds, UTC).replace(microsecond=rest))
    except (ValueError, OverflowError, OSError):
        # Event times may lie outside the years that Python's calendar has.
        return f"{micros} us"


def _iso(moment: datetime) -> str:
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
