"""Updating statistics: what is known of the streams after an epoch, from what its partitions report."""

from __future__ import annotations

from midstream.adapt.statistics import advance
from midstream.engine.event_times import common_range
from midstream.protocol.report import Report
from midstream.query.query import Query
from midstream.state.statistics import Statistics


def update_statistics(query: Query, before: Statistics, report: Report, *, alone: bool) -> Statistics:
    """The statistics with which an epoch is committed; ``alone`` unless two plans were running."""
    window = query.longest_window
    return advance(
        query,
        before,
        ranges={name: common_range(count.ranges, window) for name, count in report.counts.items()},
        sizes={name: count.bytes for name, count in report.counts.items()},
        keys=report.keys,
        produced=report.produced if alone else None,
    )
