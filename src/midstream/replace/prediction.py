"""What a replacement takes by each strategy, as far as statistics and the models of the papers tell."""

from __future__ import annotations

from dataclasses import replace
from math import inf

from midstream.adapt.plan_cost import layout_cost
from midstream.adapt.statistics import window_or_recent
from midstream.aggregate.next_step import earliest_result
from midstream.migration.paper_models import (
    BlackBoxModel,
    ghm_duration,
    gms_duration,
    gms_spike_length,
    gpt_cpu,
)
from midstream.plan.build_layout import build_layout
from midstream.plan.tree import parse_plan
from midstream.query.query import Query
from midstream.replace.handover_time import is_done, last_window_end
from midstream.replace.request import QuerySnapshot
from midstream.values import MICROS_PER_SECOND

_LONG = {86_400: "days", 3600: "hours", 60: "minutes"}


def describe_prediction(running: QuerySnapshot, query: Query, plan: str, strategy: str) -> str:
    """How much work it is, and how long it takes."""
    context = running.coordinator.decision_context(running.manifest)
    added = [name for name in query.names if name not in context.query.by_name]
    if added:
        return f"what it costs is not known, as nothing is known of stream {added[0]}"
    if context.streams_without_statistics:
        return "what it costs is not known yet"
    seconds_per_unit = context.statistics.calibration.seconds_per_unit / context.partitions
    estimator = context.estimator
    rates = [estimator.rate((name,)) for name in context.query.names]
    per_second = [layout_cost(context.layout, estimator, context.partitions)]
    if set(query.names) == set(context.query.names):
        layout = build_layout(query, parse_plan(plan, query.names))
        per_second.append(layout_cost(layout, estimator, context.partitions))
    rate = max(sum(rates) / len(rates), 1e-9)
    t_old, t_new = (cost * seconds_per_unit / (rate * len(rates)) for cost in (per_second[0], per_second[-1]))
    boxes = BlackBoxModel(
        tau=rate,
        tau_before=rate,
        n=len(rates),
        w=window_or_recent(context.query, context.statistics.elapsed),
        t_old=t_old,
        t_new=t_new,
        t_new_before=t_new,
    )
    window = window_or_recent(query, context.statistics.elapsed)
    return describe_strategy_prediction(strategy, boxes, window, seconds_per_unit)


def describe_strategy_prediction(
    strategy: str, boxes: BlackBoxModel, new_window: float, seconds_per_unit: float
) -> str:
    """What the models say, in units of work and in time."""

    def units(seconds: float) -> str:
        return f"about {seconds / seconds_per_unit:,.0f} units"

    if strategy == "generalized_moving_state":
        at_once, then = gms_duration(boxes), gms_spike_length(boxes)
        late = f"results are late for {show_seconds(at_once + then)}"
        if then == inf:
            late = f"results are late by {show_seconds(at_once)}, and the query never catches up"
        return f"{units(at_once)} at once, and {late}"
    if strategy == "generalized_parallel_track":
        both = gpt_cpu(replace(boxes, w=new_window))
        return f"{units(both)} for both definitions meanwhile"
    catching_up = ghm_duration(boxes)
    if catching_up == inf:
        return "it does not catch up: batches leave no time"
    work = boxes.replay_time + boxes.load_new * catching_up
    return f"{units(work)} in the time that batches leave, at least {show_seconds(catching_up)}"


def describe_end(running: QuerySnapshot, until: int | None) -> str:
    """How long both definitions run, in event time, once the new one takes part."""
    query, manifest = running.coordinator.query, running.manifest
    windows = query.event_windows
    mark = earliest_result(query, manifest, None if windows is None else windows.stream)
    if until is None:
        return "the old one ends with the epoch after that"
    if mark is None:
        return "both go on until every stream has had rows"
    left = max(0, last_window_end(query, until) - mark) / MICROS_PER_SECOND
    if not left:
        return "the old one ends with the epoch after that"
    return f"both go on for {show_seconds(left)} of event time"


def describe_time_left(running: QuerySnapshot, until: int) -> str:
    """How long both definitions go on that run already, in event time."""
    query, manifest = running.coordinator.query, running.manifest
    windows = query.event_windows
    mark = earliest_result(query, manifest, None if windows is None else windows.stream)
    if is_done(query, manifest, until):
        return "the old one ends with the next epoch"
    if mark is not None and mark >= last_window_end(query, until):
        return "the old one gives its last windows with the next epoch, and ends with the one after it"
    return describe_end(running, until)


def show_seconds(seconds: float) -> str:
    """A duration as a person would say it; none is too short to be told."""
    if seconds < 1:
        return f"{max(1000 * seconds, 1):.0f} ms"
    for size, unit in _LONG.items():
        if seconds >= 2 * size:
            return f"{seconds / size:,.0f} {unit}"
    return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
