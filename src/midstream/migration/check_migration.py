"""Checking a manifest's migration before going on with it."""

from __future__ import annotations

from collections.abc import Iterator

from midstream.errors import CheckpointError
from midstream.migration.lifecycle import plans_of
from midstream.migration.strategies import STRATEGIES
from midstream.query.query import Query
from midstream.state.manifest import Manifest
from midstream.state.migration import Migration


def check_migration(query: Query, manifest: Manifest) -> None:
    """Refuse a manifest whose migration could not have come about."""
    ids = {**manifest.state_ids, **(manifest.migration.state_ids if manifest.migration else {})}
    wrong = [f"{plain} as {state}" for plain, state in ids.items() if state.label != plain]
    if manifest.migration is not None and not wrong:
        wrong += _problems(query, manifest, manifest.migration)
    if wrong:
        raise CheckpointError(
            "a manifest must have a migration that its plans allow",
            got=wrong[0],
            hint="restore its manifests from a copy",
        )


def _problems(query: Query, manifest: Manifest, migration: Migration) -> Iterator[str]:
    if migration.strategy not in STRATEGIES:
        yield f"strategy {migration.strategy!r}"
        return
    plans = plans_of(query, manifest, migration)
    states = plans.new.states | set(plans.copies.values())
    if migration.isolated and migration.background:
        yield "plans that are isolated, and background work"
    if set(migration.handover) != {subplan.root for subplan in plans.subplans}:
        yield f"tables of {', '.join(migration.handover) or 'nothing'}"
    for entry in (entry for entries in migration.handover.values() for entry in entries):
        times = (migration.latest_times.get(epoch, {}) for epoch in entry.bounds.values())
        timed = all(set(latest) == set(query.names) for latest in times)
        if entry.state not in states or set(entry.bounds) != set(entry.state.streams) or not timed:
            yield f"an entry of {entry.state}"
    for state, progress in migration.rebuilding.items():
        if progress.stream not in state.streams:
            yield f"a rebuild of {state}"
