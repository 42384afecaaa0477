"""Updating statistics: what is known of the streams after an epoch, from what its partitions report."""

from __future__ import annotations

from collections.abc import Iterable

from midstream.adapt.statistics import advance
from midstream.protocol.report import Report
from midstream.query.query import Query
from midstream.state.manifest import Manifest, StreamProgress
from midstream.state.statistics import Statistics
from midstream.values import MICROS_PER_SECOND


def update_statistics(
    query: Query, before: Manifest, after: Manifest, report: Report, *, alone: bool
) -> Statistics:
    """The statistics with which ``after`` is committed; ``alone`` unless two plans were running."""
    was, now = _latest(before.streams.values()), _latest(after.streams.values())
    if was is None or now is None:
        # Nobody knows how long the first rows took to come.
        return before.statistics
    return advance(
        query,
        before.statistics,
        seconds=max(now - was, 0) / MICROS_PER_SECOND,
        rows={name: count.accepted for name, count in report.counts.items()},
        sizes={name: count.bytes for name, count in report.counts.items()},
        keys=report.keys,
        produced=report.produced if alone else None,
    )


def _latest(streams: Iterable[StreamProgress]) -> int | None:
    """How far the streams have come: half of them at least, so that one odd time stops no clock."""
    times = sorted(stream.latest for stream in streams if stream.latest is not None)
    return times[len(times) // 2] if times else None
