"""A migration as text that a person reads: both plans, and which of them makes what."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from midstream.migration.handover import replaced_subplans
from midstream.migration.lifecycle import layout_of
from midstream.migration.strategies import STRATEGIES
from midstream.plan.explain import StateSize, explain
from midstream.plan.state_id import StateId
from midstream.query.query import Query
from midstream.state.manifest import Manifest
from midstream.state.migration import HandoverEntry, Migration


def explain_query(query: Query, manifest: Manifest, sizes: Mapping[StateId, StateSize]) -> str:
    """The running plan, or both plans of a migration and how they share the work."""
    old = layout_of(query, manifest.plan, manifest.state_ids)
    if manifest.migration is None:
        return explain(query, old, sizes)
    migration = manifest.migration
    new = layout_of(query, migration.new_plan, migration.state_ids)
    return "\n".join(
        [
            *_summary(migration),
            "",
            *_shares(query, manifest, migration),
            "",
            "== Old plan ==",
            explain(query, old, sizes),
            "",
            "== New plan ==",
            explain(query, new, sizes),
        ]
    )


def _summary(migration: Migration) -> Iterator[str]:
    chosen = STRATEGIES[migration.strategy].isolation == "optional" and migration.isolated
    how = f"{migration.strategy}{' with isolated plans' if chosen else ''}"
    yield f"Migration {migration.number}, by {how}, since epoch {migration.start_epoch}"
    yield f"  from {migration.old_plan}"
    yield f"  to   {migration.new_plan}"


def _shares(query: Query, manifest: Manifest, migration: Migration) -> Iterator[str]:
    old = layout_of(query, manifest.plan, manifest.state_ids)
    new = layout_of(query, migration.new_plan, migration.state_ids)
    shared = old.states & new.states
    for subplan in replaced_subplans(old, new, shared):
        what = "results" if subplan.root == new.root else f"rows of {{{subplan.root.label}}}"
        entries = migration.handover.get(subplan.root, ())
        if not entries:
            yield f"All {what} come from the new plan."
            continue
        yield f"Of the {what} the old plan produces those in which"
        yield from (f"  {'or ' if i else ''}{_entry(entry)}" for i, entry in enumerate(entries))
        deferred = STRATEGIES[migration.strategy].defers_results and subplan.root == new.root
        yield f"and the new plan all others{'; these wait for the end' if deferred else ''}."
    common = sorted(f"{{{state.label}}}" for state in shared)
    if migration.isolated:
        yield "The new plan has states of its own; when it is alone, it goes on with these of the old one:"
    yield f"Shared states: {', '.join(common) or 'none'}"


def _entry(entry: HandoverEntry) -> str:
    parts = [f"{stream} arrived before epoch {epoch}" for stream, epoch in entry.bounds.items()]
    return " and ".join(parts)
