"""Explaining replacements as text: the definitions of one in progress, and what another one would take."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from midstream.adapt.decision import DecisionContext
from midstream.adapt.plan_cost import layout_cost
from midstream.errors import MidstreamError
from midstream.migration.explain import explain_query
from midstream.migration.paper_models import (
    BlackBoxes,
    ghm_duration,
    gms_duration,
    gms_spike_length,
    gpt_cpu,
)
from midstream.migration.strategies import BLACK_BOX_STRATEGIES
from midstream.plan.build_layout import build_layout
from midstream.plan.explain import StateSize
from midstream.plan.state_id import StateId
from midstream.plan.tree import Plan, parse_plan
from midstream.protocol.settings import definition_of
from midstream.query.query import Query
from midstream.replace.boxes import Boxes
from midstream.replace.check_replacement import missing_columns
from midstream.replace.handover_time import handover_time
from midstream.replace.request import make_replacement
from midstream.replace.shared_streams import has_dropped_rows, shared_streams
from midstream.state.manifest import Manifest, Replacement
from midstream.values import MICROS_PER_SECOND, show_duration, show_time

_PARTS = {
    "order": "streams",
    "timeZone": "time zone",
    "streams": "columns and times",
    "on": "conditions",
    "within": "windows",
    "select": "outputs",
    "aggregation": "aggregates",
}


def explain_running(
    boxes: Boxes,
    manifest: Manifest,
    sizes: Mapping[StateId, StateSize],
    new_sizes: Mapping[StateId, StateSize],
) -> str:
    """The running plan; while a replacement runs, those of both definitions and which results are whose."""
    replacement = manifest.replacement
    if replacement is None:
        return explain_query(boxes.query, manifest, sizes)
    new = boxes.new_query(replacement)
    return "\n".join(
        [
            f"Replacement {replacement.number}, by {replacement.strategy}, "
            f"since epoch {replacement.start_epoch}",
            _phase(replacement),
            *_changes(manifest.definition, replacement.successor.definition),
            "",
            "== Old definition ==",
            explain_query(boxes.query, manifest, sizes),
            "",
            "== New definition ==",
            explain_query(new, replacement.successor, new_sizes),
        ]
    )


def _phase(replacement: Replacement) -> str:
    if replacement.live_since is None:
        return f"The new definition has the stored rows of epochs before {replacement.replayed_before}."
    if replacement.until is None:
        return "All results are the new definition's."
    return f"Results until {show_time(replacement.until)} are the old definition's, later ones the new one's."


def explain_replacement(
    boxes: Boxes, manifest: Manifest, query: Query, plan: str | Plan | None = None, path: str = ""
) -> str:
    """What would change, whether the stored rows suffice, and what each strategy would take; does nothing."""
    lines = ["What changes:", *(_changes(manifest.definition, definition_of(query, boxes.settings)))]
    lines += ["  nothing"] if len(lines) == 1 else []
    lines += ["", *_history(boxes, manifest, query), "", "If it began now:"]
    refused: MidstreamError | None = None
    for name, strategy in BLACK_BOX_STRATEGIES.items():
        try:
            request = make_replacement(boxes, manifest, query, plan, name, path)
        except MidstreamError as error:
            lines.append(f"  {name}: refused: {error}")
            refused = error
            continue
        replayed = shared_streams(boxes.query, query) if strategy.history != "none" else ()
        until = handover_time(boxes.query, manifest, query, replayed)
        whose = "all results are the new definition's"
        if until is not None:
            whose = f"results after {show_time(until)} are the new definition's"
        lines.append(f"  {name}: {whose}; {_cost(boxes, manifest, query, request.plan, name)}")
    if refused is None and boxes.settings.memory is not None:
        lines.append("Until it ends, each of the two definitions has the whole budget of stateMemory.")
    return "\n".join(lines)


def _changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[str]:
    for part, name in _PARTS.items():
        if before[part] != after[part]:
            yield f"  {name}: {_show(before[part])} -> {_show(after[part])}"


def _show(value: Any) -> str:
    if isinstance(value, dict) and "aggregates" in value:
        length, slide = (show_duration(value["window"][part]) for part in ("length", "slide"))
        windows = f"window of {length}" + ("" if length == slide else f" every {slide}")
        return f"{', '.join(value['aggregates'])} by {', '.join([*value['by'], windows])}"
    if isinstance(value, dict) and all(isinstance(each, str) for each in value.values()):
        return ", ".join(f"{name} {each}" for name, each in value.items()) or "none"
    if isinstance(value, dict):
        return ", ".join(value)
    return ", ".join(value) if isinstance(value, list) else str(value or "none")


def _history(boxes: Boxes, manifest: Manifest, query: Query) -> Iterator[str]:
    missing = missing_columns(boxes.query, query, boxes.layout(manifest))
    yield "Stored rows:"
    for name in query.names:
        if name in missing:
            yield f"  {name}: lack {', '.join(missing[name])}"
        elif name not in boxes.query.by_name:
            yield f"  {name}: a new stream, whose rows are joined from now on"
        elif has_dropped_rows(boxes.query, manifest, query, name):
            yield f"  {name}: some were not stored, as a key was null that is none any more"
        else:
            yield f"  {name}: have what the new definition needs"


def _cost(boxes: Boxes, manifest: Manifest, query: Query, plan: str, strategy: str) -> str:
    """What a strategy would take, by the models of the papers: units of the cost model, and event time."""
    context = boxes.decision_context(manifest)
    if context.streams_without_statistics:
        return "what it costs is not known yet"
    model = black_boxes(context, query, plan)
    window = model.w
    if strategy == "generalized_moving_state":
        spike = gms_spike_length(model)
        late = f", results are late for {_seconds(spike)}" if spike > 0 else ""
        return f"about {_units(gms_duration(model))} units at once{late}"
    if strategy == "generalized_parallel_track":
        return f"about {_units(gpt_cpu(model))} units over {_seconds(window)}"
    return f"about {_units(ghm_duration(model))} units in the time that batches leave"


def black_boxes(context: DecisionContext, query: Query, plan: str) -> BlackBoxes:
    """The model of two boxes: a unit of the cost model is a microsecond, about what it takes on one core."""
    estimator = context.estimator
    rates = [estimator.rate((name,)) for name in context.query.names]
    rate = sum(rates) / len(rates)
    per_second = layout_cost(context.layout, estimator, context.partitions)
    new_per_second = per_second
    if set(query.names) == set(context.query.names):
        layout = build_layout(query, parse_plan(plan, query.names))
        new_per_second = layout_cost(layout, estimator, context.partitions)
    total = max(rate * len(rates), 1e-9)
    window = min(query.longest_window, context.query.longest_window, 2**62) / MICROS_PER_SECOND
    return BlackBoxes(
        tau=rate,
        tau_before=rate,
        n=len(rates),
        w=window,
        t_old=per_second / total / MICROS_PER_SECOND,
        t_new=new_per_second / total / MICROS_PER_SECOND,
        t_new_before=new_per_second / total / MICROS_PER_SECOND,
    )


def _units(seconds: float) -> str:
    return f"{seconds * MICROS_PER_SECOND:,.0f}"


def _seconds(seconds: float) -> str:
    return show_duration(round(seconds * 1000) * 1000) if seconds < 2**40 else "ever"
