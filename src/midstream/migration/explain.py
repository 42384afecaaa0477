"""A migration as text that a person reads: both plans, and which of them makes what."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from midstream.migration.handover import replaced_subplans
from midstream.migration.lifecycle import layout_of
from midstream.plan.explain import StateSize, explain
from midstream.plan.layout import StateId, plain
from midstream.query.query import Query
from midstream.state.manifest import Manifest
from midstream.state.migration import HandoverEntry, Migration


def explain_query(query: Query, manifest: Manifest, sizes: Mapping[StateId, StateSize]) -> str:
    """The running plan, or both plans of a migration and how they share the work."""
    old = layout_of(query, manifest.plan, manifest.states)
    if manifest.migration is None:
        return explain(query, old, sizes)
    migration = manifest.migration
    new = layout_of(query, migration.plan, migration.states)
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
    isolated = " with its plans apart" if migration.strategy == "hybrid" and migration.isolated else ""
    yield f"Migration {migration.number}, by {migration.strategy}{isolated}, since epoch {migration.start}"
    yield f"  from {migration.old_plan}"
    yield f"  to   {migration.plan}"


def _shares(query: Query, manifest: Manifest, migration: Migration) -> Iterator[str]:
    old = layout_of(query, manifest.plan, manifest.states)
    new = layout_of(query, migration.plan, migration.states)
    shared = old.states & new.states
    for task in replaced_subplans(old, new, shared):
        what = "results" if task.root == new.root else f"rows of {{{plain(task.root)}}}"
        entries = migration.tables.get(task.root, ())
        if not entries:
            yield f"All {what} come from the new plan."
            continue
        yield f"Of the {what} the old plan makes those in which"
        yield from (f"  {'or ' if i else ''}{_entry(entry)}" for i, entry in enumerate(entries))
        tracks = migration.strategy == "parallel_track" and task.root == new.root
        waits = "; these wait for the end" if tracks else ""
        yield f"and the new plan all others{waits}."
    common = sorted(f"{{{plain(state)}}}" for state in shared)
    if migration.isolated:
        yield "The new plan has states of its own; when it is alone, it goes on with these of the old one:"
    yield f"Shared states: {', '.join(common) or 'none'}"


def _entry(entry: HandoverEntry) -> str:
    parts = [f"{stream} arrived before epoch {epoch}" for stream, epoch in entry.bounds.items()]
    return " and ".join(parts)
