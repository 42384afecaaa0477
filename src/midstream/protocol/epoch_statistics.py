"""Updating statistics: what is known of the streams after an epoch, from what its partitions report."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from midstream.adapt.calibrate import learn
from midstream.adapt.cost import counted_cost, unplaced_factor
from midstream.adapt.statistics import advance
from midstream.engine.event_times import common_range
from midstream.engine.program import Program
from midstream.protocol.report import Report
from midstream.query.query import Query
from midstream.state.costs import Cost, Measurement
from midstream.state.statistics import Statistics


def update_statistics(
    query: Query,
    before: Statistics,
    report: Report,
    *,
    spent: Cost,
    measurements: Iterable[Measurement],
    alone: bool,
) -> Statistics:
    """The statistics with which an epoch is committed; ``alone`` unless two plans were running.

    ``spent`` is the work of the epoch; the measurements are of the one before.
    """
    window = query.longest_window
    after = advance(
        query,
        before,
        ranges={name: common_range(count.ranges, window) for name, count in report.counts.items()},
        sizes={name: count.bytes for name, count in report.counts.items()},
        keys=report.keys,
        # What a head has found at a site is a part of the rows of a join.
        produced={s: rows for s, rows in report.produced.items() if not s.site} if alone else None,
        spent=spent,
    )
    return replace(after, calibration=learn(before.calibration, measurements))


def work_done(program: Program, report: Report) -> Cost:
    """What an epoch has done, as plans are charged for it, without the bytes that it has stored.

    Fragments that no key places count for all partitions, and rows are sent to the stages of their inputs.
    """
    waiting = unplaced_factor(program.places.partitions, is_placed=False) - 1
    sent = sum(
        (1 + fragment.stage) * report.counts[stream].rows
        for fragment in program.layout.fragments
        for one in fragment.inputs
        if one.is_stream
        for stream in one.streams
        if stream in report.counts
    )
    done = counted_cost(report.work) + counted_cost(report.unplaced_work) * waiting
    return done + Cost(sent_rows=sent, stages=program.stages - 1)
