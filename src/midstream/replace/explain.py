"""Explaining replacements as text: the definitions of one in progress, and what another one would take."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from midstream.errors import MidstreamError
from midstream.migration.explain import explain_query
from midstream.migration.strategies import BLACK_BOX_STRATEGIES
from midstream.plan.tree import Plan
from midstream.protocol.progress import state_sizes
from midstream.protocol.replacement_progress import asked_for, caught_up_share, replaced_part
from midstream.protocol.settings import definition_of
from midstream.query.query import Query
from midstream.replace.changes import describe_changes
from midstream.replace.check_replacement import missing_columns
from midstream.replace.handover_time import handover_time
from midstream.replace.prediction import describe_end, describe_prediction, describe_time_left
from midstream.replace.request import QuerySnapshot, make_replacement
from midstream.replace.shared_streams import has_dropped_rows, shared_streams
from midstream.state.manifest import Replacement
from midstream.state.replacement import ReplacementRequest
from midstream.values import show_time


def explain_running(running: QuerySnapshot) -> str:
    """The running plan; while a replacement runs, those of both definitions and which results are whose."""
    coordinator, manifest = running.coordinator, running.manifest
    replacement = manifest.replacement
    if replacement is None:
        now = explain_query(coordinator.query, manifest, state_sizes(manifest))
        return now if running.asked is None else "\n".join([*_asked(running, running.asked), "", now])
    of = replaced_part(replacement)
    successor = replacement.successor
    return "\n".join(
        [
            f"Replacement {replacement.number} of the {of}, by {replacement.strategy}, "
            f"since epoch {replacement.start_epoch}",
            _phase(running, replacement),
            *(f"  {line}" for line in describe_changes(manifest.definition, successor.definition)),
            "",
            f"== Old {of} ==",
            explain_query(coordinator.query, manifest, state_sizes(manifest)),
            "",
            f"== New {of} ==",
            explain_query(coordinator.new_query(replacement), successor, state_sizes(successor)),
        ]
    )


def _phase(running: QuerySnapshot, replacement: Replacement) -> str:
    of, until = replaced_part(replacement), replacement.until
    if replacement.live_since is None:
        percent = 100 * caught_up_share(running.manifest)
        return (
            f"The new {of} has {percent:.0f} % of the stored rows: those that came "
            f"before epoch {replacement.replayed_before}."
        )
    if until is None:
        return f"All results are the new {of}'s."
    by_window = running.coordinator.query.aggregation is not None
    which = "Windows that begin by" if by_window else "Results until"
    rest = "all that is later is the new one's" if by_window else "later ones the new one's"
    return f"{which} {show_time(until)} are the old {of}'s, {rest}; {describe_time_left(running, until)}."


def _asked(running: QuerySnapshot, asked: ReplacementRequest) -> Iterator[str]:
    coordinator, manifest = running.coordinator, running.manifest
    yield f"A replacement waits: {asked_for(asked)}."
    if manifest.migration is not None:
        yield "It begins once the migration has ended."
    elif coordinator.must_wait(manifest, asked):
        yield "It begins once the rows have expired that came before the windows changed."
    else:
        yield "It begins with the next epoch, unless another change of plan that was asked for comes first."
    if asked.plan != running.plan:
        yield f"  plan: {running.plan} -> {asked.plan}"
    if asked.definition:
        before = definition_of(coordinator.query, coordinator.settings)
        yield from (f"  {line}" for line in describe_changes(before, asked.definition))


def explain_replacement(
    running: QuerySnapshot,
    query: Query,
    plan: str | Plan | None = None,
    path: str = "",
    check: Callable[[], None] = lambda: None,
) -> str:
    """What would change, whether the stored rows suffice, and what each strategy would take; does nothing.

    ``check`` refuses what the query cannot read or write while it runs.
    """
    coordinator = running.coordinator
    before, after = (definition_of(each, coordinator.settings) for each in (coordinator.query, query))
    lines = ["What changes:", *(f"  {line}" for line in describe_changes(before, after))]
    lines += [f"  plan: {running.plan} -> {plan}"] if plan is not None and str(plan) != running.plan else []
    lines += ["  nothing"] if len(lines) == 1 else []
    asked = {name: _asked_for(running, query, plan, name, path) for name in BLACK_BOX_STRATEGIES}
    refusals: dict[str, list[str]] = {}
    for name, each in asked.items():
        if isinstance(each, MidstreamError):
            refusals.setdefault(str(each), []).append(name)
    for text, refused in refusals.items():
        if len(refused) == len(asked):
            return "\n".join([*lines, "", f"It would be refused: {text}"])
    lines += ["", *_history(running, query), "", "If it began now:"]
    for name, each in asked.items():
        if isinstance(each, ReplacementRequest):
            lines.append(f"  {name}: {_course(running, query, each)}")
    for text, refused in refusals.items():
        lines.append(f"  {', '.join(refused)}: refused: {text}")
    if coordinator.settings.memory is not None:
        lines.append("Until it ends, each of the two definitions has the whole budget of stateMemory.")
    try:
        check()
    except MidstreamError as error:
        lines.append(f"Refused while the query runs: {error}")
    return "\n".join(lines)


def _asked_for(
    running: QuerySnapshot, query: Query, plan: str | Plan | None, strategy: str, path: str
) -> ReplacementRequest | MidstreamError:
    try:
        return make_replacement(running, query, plan, strategy, path)
    except MidstreamError as error:
        return error


def _course(running: QuerySnapshot, query: Query, request: ReplacementRequest) -> str:
    """When results would pass over, and what it would take."""
    strategy = BLACK_BOX_STRATEGIES[request.strategy]
    old = running.coordinator.query
    replayed = shared_streams(old, query) if strategy.history != "none" else ()
    until = handover_time(old, running.manifest, query, replayed)
    whose = "all results are the new definition's"
    if until is not None:
        earliest = " at the earliest, once it has caught up," if strategy.history == "in portions" else ""
        whose = f"results after {show_time(until)}{earliest} are the new definition's"
    prediction = describe_prediction(running, query, request.plan, request.strategy)
    return f"{whose}; {describe_end(running, until)}; {prediction}"


def _history(running: QuerySnapshot, query: Query) -> Iterator[str]:
    coordinator, manifest = running.coordinator, running.manifest
    missing = missing_columns(coordinator.query, query, coordinator.layout(manifest))
    yield "Stored rows:"
    for name in query.names:
        if name in missing:
            yield f"  {name}: lack {', '.join(missing[name])}"
        elif name not in coordinator.query.by_name:
            yield f"  {name}: a new stream, whose rows are joined from now on"
        elif has_dropped_rows(coordinator.query, manifest, query, name):
            yield f"  {name}: some were not stored, because a column was null that is no key any more"
        else:
            yield f"  {name}: have what the new definition needs"
