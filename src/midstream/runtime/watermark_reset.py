"""Setting back a runaway watermark, while no query runs on the checkpoint.

A row with a wrong time in the future moves its stream's watermark there; all later rows of the stream are
late. This commits a manifest with the watermark that an operator gives, in place of the newest one: the same
epoch, under a later lease.

What the runaway watermark has cost cannot be brought back:

- Rows that were late stay late.
- Rows of other streams that are too far behind it to join with a row of this stream are dropped from all
  states, even if some file still has them. Their payload may be gone, and so may their combined rows: which
  results they would still have would depend on the plan.
- Rows of the stream itself from the runaway watermark on are dropped: they are the ones that moved it. They
  would never expire, and a migration that waits for old rows to expire would never end.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
from msgspec.structs import replace

from midstream.engine.index_rows import IndexRows
from midstream.engine.program import NewSlice
from midstream.errors import CheckpointError, OptionError
from midstream.protocol.lease import LeaseHandle
from midstream.protocol.query_terms import expiry_after, lateness_of_definition
from midstream.state.expiry import Expiry
from midstream.state.manifest import Manifest, Retired, StreamProgress
from midstream.state.migration import Migration
from midstream.state.slices import Slice
from midstream.state.window_change import WindowChange
from midstream.storage.intents import find_intent
from midstream.storage.manifest_log import Committed, commit_manifest
from midstream.storage.open_checkpoint import open_manifest
from midstream.storage.slice_files import SliceFiles
from midstream.storage.store import Store
from midstream.values import show_time


def reset_watermark(store: Store, lease: LeaseHandle, stream: str, watermark: int) -> Manifest:
    """Commit a manifest with another watermark for a stream, and without what has expired."""
    stored = open_manifest(store, lease.number)
    if stored is None or stored.manifest.epoch < 0:
        must, hint = "a watermark must have moved to be set back", "start the query first"
        raise CheckpointError(must, got="no committed epoch", hint=hint)
    mark = _check_can_be_set_back(store, stored, stream, watermark)
    manifest = stored.manifest
    slices = _slices_without_lost_rows(SliceFiles(store, manifest.id, lease.number), manifest, stream)
    lateness = lateness_of_definition(manifest, stream)
    _check_after(slices, mark, stream, watermark, lateness)
    used = {slice_.name for slice_ in slices}
    unused = dict.fromkeys(s.name for s in manifest.slices if s.name not in used)
    latest = None if mark.latest is None else min(watermark + lateness, mark.latest)
    moved = replace(mark, watermark=watermark, latest=latest, idle=False)
    after = replace(
        manifest,
        streams=_limit_last_active({**manifest.streams, stream: moved}),
        migration=_limit_latest_times(manifest.migration, stream, latest),
        window_changes=_limit_changes(manifest.window_changes, stream, latest),
        slices=tuple(slices),
        retired=(*manifest.retired, *(Retired(name, manifest.epoch) for name in unused)),
        previous=stored.digest,
        lease=lease.number,
    )
    lease.check()
    with lease.holding():
        commit_manifest(store, after)
    return after


def _check_can_be_set_back(store: Store, stored: Committed, stream: str, watermark: int) -> StreamProgress:
    marks = stored.manifest.streams
    if stream not in marks:
        hint = f"the streams are {', '.join(marks)}"
        raise OptionError("the stream must be one of the query's", got=repr(stream), hint=hint)
    mark = marks[stream]
    if mark.watermark is None or watermark >= mark.watermark:
        raise OptionError(
            "a watermark must be set back, not forward: it moves forward by itself",
            got=f"{show_time(watermark)} instead of {show_time(mark.watermark)}",
            hint="give an earlier time",
        )
    if stored.manifest.definition["aggregation"] is not None:
        raise CheckpointError(
            "a query whose watermark is set back must have no aggregates",
            got="a query with aggregates, whose windows come out once",
            hint="start a new query with another checkpointLocation, without the rows with a wrong time",
        )
    if stored.manifest.replacement is not None or stored.manifest.handed_over is not None:
        raise CheckpointError(
            "a replacement must have ended before a watermark is set back",
            got="one whose results pass over at an event time that is not reached yet",
            hint="start the query, and stop it when the replacement has ended",
        )
    if stored.manifest.memory.cuts:
        raise CheckpointError(
            "state must not be spilled when a watermark is set back",
            got=f"{sum(map(len, stored.manifest.memory.cuts.values()))} groups that are",
            hint="start the query without stateMemory, so that they come back, and stop it",
        )
    if find_intent(store, stored.manifest.epoch + 1) is not None:
        # A sink may have had results of it; it must run again as it was begun.
        raise CheckpointError(
            "the last epoch that was begun must be committed before a watermark is set back",
            got=f"epoch {stored.manifest.epoch + 1}, which was begun and not committed",
            hint="start the query once more, and stop it when it has committed that epoch",
        )
    return mark


def _limit_last_active(marks: dict[str, StreamProgress]) -> dict[str, StreamProgress]:
    """No stream can have been active after the newest event time, which may now be an earlier one."""
    now = max((mark.latest for mark in marks.values() if mark.latest is not None), default=0)
    return {
        n: m if m.last_active is None else replace(m, last_active=min(m.last_active, now))
        for n, m in marks.items()
    }


def _check_after(
    slices: list[Slice], mark: StreamProgress, stream: str, watermark: int, lateness: int
) -> None:
    """Refuse a watermark that remaining rows of the stream would have moved further already."""
    times = [
        slice_.latest[slice_.owner.state.streams.index(stream)]
        for slice_ in slices
        if slice_.owner.has_index_rows and stream in slice_.owner.state.streams
    ]
    if mark.latest is not None and mark.watermark is not None and mark.latest < mark.watermark:
        times.append(mark.latest)  # it was another stream that moved the watermark
    earliest = max(times, default=None)
    if earliest is not None and watermark < earliest - lateness:
        raise OptionError(
            f"a watermark must not be set back further than the rows of {stream} that are kept have moved it",
            got=f"{show_time(watermark)}, before {show_time(earliest - lateness)}",
            hint="set it back to that; if the row that moved it there is wrong too, once more afterwards",
        )


def _limit_latest_times(migration: Migration | None, stream: str, latest: int | None) -> Migration | None:
    """A migration waits until rows as late as the latest have expired; that may be the wrong time."""
    if migration is None or latest is None:
        return migration
    latest_times = {
        epoch: {n: min(time, latest) if n == stream and time is not None else time for n, time in m.items()}
        for epoch, m in migration.latest_times.items()
    }
    return replace(migration, latest_times=latest_times)


def _limit_changes(
    changes: tuple[WindowChange, ...], stream: str, latest: int | None
) -> tuple[WindowChange, ...]:
    """A change of the windows is kept until rows as late as the latest have expired, too."""
    if latest is None:
        return changes
    limited = []
    for change in changes:
        before = change.latest[stream]
        times = {**change.latest, stream: None if before is None else min(before, latest)}
        limited.append(replace(change, latest=times))
    return tuple(limited)


def _slices_without_lost_rows(files: SliceFiles, manifest: Manifest, stream: str) -> list[Slice]:
    """The slices without the rows that the runaway watermark has cost."""
    expiry = expiry_after(manifest)
    slices = []
    for slice_ in manifest.slices:
        if not slice_.owner.has_index_rows:
            slices.append(slice_)
            continue
        rows = IndexRows.from_table(files.open(slice_), slice_.owner.key)
        remains = expiry.is_live(rows.times, slice_.last_epoch) & _may_join(expiry, rows.times, stream)
        if not remains.any():
            continue
        rows = rows.take(remains)
        # After a merge it may still be the time of a row that has expired.
        latest = tuple(int(rows.times[name].max()) for name in slice_.owner.state.streams)
        updated = replace(slice_, latest=latest, rows=len(rows))
        if not remains.all():
            encoded = files.encode(NewSlice(updated, rows.to_table()))
            files.write([encoded])
            updated = encoded.slice
        slices.append(updated)
    return slices


def _may_join(
    expiry: Expiry, times: Mapping[str, npt.NDArray[np.int64]], stream: str
) -> npt.NDArray[np.bool_]:
    """Which rows have neither moved a stream's watermark nor are too far behind it."""
    watermark = expiry.watermarks[stream]
    may_join = np.ones(len(next(iter(times.values()))), np.bool_)
    for name, event_times in times.items():
        window = expiry.windows.width(name, stream) if name != stream else None
        if watermark is not None and name == stream:
            may_join &= event_times < watermark
        elif watermark is not None and window is not None:
            may_join &= event_times >= watermark - window
    return may_join
