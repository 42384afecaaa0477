"""Explaining a migration as text: both plans, and which of them produces which results."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from midstream.migration.handover_tables import expire, time_until_expired
from midstream.migration.lifecycle import layout_of, plans_of
from midstream.migration.strategies import STRATEGIES
from midstream.plan.explain import StateSize, explain
from midstream.plan.state_id import StateId
from midstream.query.query import Query
from midstream.state.expiry import Expiry
from midstream.state.manifest import Manifest
from midstream.state.migration import HandoverEntry, Migration
from midstream.values import MICROS_PER_SECOND, show_duration


def explain_query(query: Query, manifest: Manifest, sizes: Mapping[StateId, StateSize]) -> str:
    """The running plan, or both plans of a migration and how they divide the results."""
    old = layout_of(query, manifest.plan, manifest.state_ids)
    if manifest.migration is None:
        return explain(query, old, sizes)
    migration = manifest.migration
    new = layout_of(query, migration.new_plan, migration.state_ids)
    if query.topology is not None:
        return "\n".join([*_switch(migration), "", explain(query, old, sizes)])
    watermarks = {name: stream.watermark for name, stream in manifest.streams.items()}
    expiry = Expiry(query.windows, watermarks, manifest.window_changes)
    if any(expire(migration.handover, expiry, migration.latest_times).values()):
        progress = [
            _end(query, migration, expiry),
            "",
            *_divisions(query, manifest, migration),
        ]
    else:
        progress = ["It ends with the next epoch: all results come from the new plan from then on."]
    return "\n".join(
        [
            *_summary(migration),
            *progress,
            "",
            "== Old plan ==",
            explain(query, old, sizes),
            "",
            "== New plan ==",
            explain(query, new, sizes),
        ]
    )


def _switch(migration: Migration) -> Iterator[str]:
    yield f"Migration {migration.number}, since epoch {migration.start_epoch}"
    yield f"  from {migration.old_plan}"
    yield f"  to   {migration.new_plan}"
    for state, epoch in migration.moving.items():
        yield f"{{{state.label}}} is being copied; rows from before epoch {epoch} are still to come."
    if not migration.moving:
        yield "All windows are complete: the next epoch runs the new plan."


def _summary(migration: Migration) -> Iterator[str]:
    chose_isolation = STRATEGIES[migration.strategy].isolation == "optional" and migration.isolated
    strategy = f"{migration.strategy}{' with isolated plans' if chose_isolation else ''}"
    yield f"Migration {migration.number}, by {strategy}, since epoch {migration.start_epoch}"
    yield f"  from {migration.old_plan}"
    yield f"  to   {migration.new_plan}"


def _end(query: Query, migration: Migration, expiry: Expiry) -> str:
    """What the migration waits for, and how long that takes at most."""
    entries = (entry for table in migration.handover.values() for entry in table)
    lefts = [time_until_expired(entry, expiry, migration.latest_times) for entry in entries]
    known = [left for left in lefts if left is not None]
    ends = ["the missing states are rebuilt"] if migration.background else []
    if not query.windows.unbounded(query.names):
        left = max(known, default=0)
        left -= left % MICROS_PER_SECOND if left > MICROS_PER_SECOND else 0
        # Nothing is known of a stream that has brought no rows yet.
        when = f", in {show_duration(left)} of event time" if len(known) == len(lefts) else ""
        ends.append(f"the rows from before it have expired{when}")
    return f"It ends when {', or when '.join(ends)}."


def _divisions(query: Query, manifest: Manifest, migration: Migration) -> Iterator[str]:
    plans = plans_of(query, manifest, migration)
    for subplan in plans.subplans:
        produced = "results" if subplan.root == plans.new.root else f"rows of {{{subplan.root.label}}}"
        entries = migration.handover.get(subplan.root, ())
        if not entries:
            yield f"All {produced} come from the new plan."
            continue
        yield f"Of the {produced} the old plan produces those in which"
        yield from (f"  {'or ' if i else ''}{_entry(entry)}" for i, entry in enumerate(entries))
        deferred = STRATEGIES[migration.strategy].defers_results and subplan.root == plans.new.root
        yield f"and the new plan all others{'; these wait for the end' if deferred else ''}."
    for state, epoch in migration.moving.items():
        yield f"{{{state.label}}} is being moved; rows from before epoch {epoch} are still to come."
    shared_labels = sorted(f"{{{state.label}}}" for state in plans.shared)
    if migration.isolated:
        yield (
            "The new plan has states of its own; when it runs alone, it continues with these of the old plan:"
        )
    yield f"Shared states: {', '.join(shared_labels) or 'none'}"


def _entry(entry: HandoverEntry) -> str:
    parts = [f"{stream} arrived before epoch {epoch}" for stream, epoch in entry.bounds.items()]
    return " and ".join(parts)
