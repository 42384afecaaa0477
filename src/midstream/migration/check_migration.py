"""Checking the migration in a manifest before it is continued."""

from __future__ import annotations

from collections.abc import Iterator

from midstream.errors import CheckpointError
from midstream.migration.lifecycle import layout_of, plans_of
from midstream.migration.sited_switch import lacking_windows
from midstream.migration.strategies import SITE_SWITCH, STRATEGIES
from midstream.query.query import Query
from midstream.state.manifest import Manifest
from midstream.state.migration import Migration


def check_migration(query: Query, manifest: Manifest) -> None:
    """Refuse a manifest whose migration is not possible between its plans."""
    ids = {**manifest.state_ids, **(manifest.migration.state_ids if manifest.migration else {})}
    problems = [f"{streams} as {state}" for streams, state in ids.items() if state.label != streams]
    if manifest.migration is not None and not problems:
        problems += _migration_problems(query, manifest, manifest.migration)
    if problems:
        raise CheckpointError(
            "a manifest must have a migration that its plans allow",
            got=problems[0],
            hint="restore its manifests from a copy",
        )


def _switch_problems(query: Query, manifest: Manifest, migration: Migration) -> Iterator[str]:
    """Windows can be copied for another plan of streams that live at sites, and nothing else."""
    if migration.strategy != SITE_SWITCH:
        yield f"strategy {migration.strategy!r}"
        return
    old = layout_of(query, manifest.plan, manifest.state_ids)
    new = layout_of(query, migration.new_plan, migration.state_ids)
    if set(migration.moving) | set(migration.completed) != set(lacking_windows(old, new)):
        yield f"{', '.join((*migration.moving, *migration.completed))} as copied windows"


def _migration_problems(query: Query, manifest: Manifest, migration: Migration) -> Iterator[str]:
    if query.topology is not None:
        yield from _switch_problems(query, manifest, migration)
        return
    if migration.strategy not in STRATEGIES:
        yield f"strategy {migration.strategy!r}"
        return
    plans = plans_of(query, manifest, migration)
    streams = {state.streams for state in plans.old.states}
    started = [s for s in plans.new.states if s.streams in streams and s not in plans.shared]
    if not {*migration.moved, *migration.moving} <= set(started):
        yield f"{', '.join((*migration.moved, *migration.moving))} as moved states"
        return
    if not set(migration.borders) <= {s for s in started if not s.is_base} or not plans.can_run_together:
        yield f"{', '.join(migration.borders)} as borders"
        return
    states = plans.new.states | set(plans.copies.values())
    if migration.isolated and migration.background:
        yield "plans that are isolated, and background work"
    if set(migration.handover) != {subplan.root for subplan in plans.subplans}:
        yield f"tables of {', '.join(migration.handover) or 'nothing'}"
    for entry in (entry for entries in migration.handover.values() for entry in entries):
        latest_times = (migration.latest_times.get(epoch, {}) for epoch in entry.bounds.values())
        has_times = all(set(latest) == set(query.names) for latest in latest_times)
        if entry.state not in states or set(entry.bounds) != set(entry.state.streams) or not has_times:
            yield f"an entry of {entry.state}"
    for state, progress in migration.rebuilding.items():
        if progress.stream not in state.streams:
            yield f"a rebuild of {state}"
