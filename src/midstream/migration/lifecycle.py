"""The lifecycle of a migration: its first epoch, the epochs in which both plans run, and its end.

Everything follows from the manifest and the intent, so an epoch that runs again does the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from dataclasses import replace as replace_field
from functools import lru_cache

from msgspec.structs import replace

from midstream.engine.migration_step import MigrationStep, Rebuild
from midstream.errors import InternalError
from midstream.migration.combined_layout import combine
from midstream.migration.handover_tables import complete, expire, first_tables
from midstream.migration.plan_pair import PlanPair
from midstream.migration.portions import with_portion
from midstream.migration.request import MigrationRequest
from midstream.migration.sited_switch import (
    after_switch_epoch,
    begin_switch,
    continue_switch,
    match_windows,
)
from midstream.migration.state_match import match_states
from midstream.migration.strategies import AUTO, SITE_SWITCH, STRATEGIES
from midstream.plan.build_layout import build_layout
from midstream.plan.layout import Key, Layout
from midstream.plan.state_id import StateId
from midstream.plan.tree import parse_plan
from midstream.query.query import Query
from midstream.state.expiry import Expiry
from midstream.state.manifest import Manifest
from midstream.state.migration import Migration

UNBOUNDED = ()
"""Bounds within which all rows lie."""
ROWS_MOVED_AT_ONCE = 50_000
"""A state with more rows is moved in portions. Fewer take less time than the epochs that portions need."""


@dataclass(frozen=True)
class EpochLayout:
    """What runs in an epoch: a layout, and one step of a migration if there is one."""

    layout: Layout
    migration_step: MigrationStep | None = None


@lru_cache(maxsize=64)
def _cached_layout(query: Query, plan: str, ids: tuple[tuple[StateId, StateId], ...]) -> Layout:
    return build_layout(query, parse_plan(plan, query.names)).renamed(dict(ids))


def layout_of(query: Query, plan: str, state_ids: Mapping[StateId, StateId]) -> Layout:
    """The layout of a plan whose states have these ids."""
    return _cached_layout(query, plan, tuple(sorted(state_ids.items())))


def next_epoch_layout(
    query: Query,
    manifest: Manifest,
    expiry: Expiry,
    request: MigrationRequest | None,
    background_epochs: int | None,
    rows_moved_at_once: int = ROWS_MOVED_AT_ONCE,
) -> EpochLayout:
    """What runs in the epoch after ``manifest``.

    ``background_epochs`` is the number of epochs whose rows may be rebuilt in the background, or moved, if
    their state has more than ``rows_moved_at_once``; None for all.
    """
    old = layout_of(query, manifest.plan, manifest.state_ids)
    if query.topology is not None:
        return _sited(query, manifest, request, background_epochs, rows_moved_at_once)
    if manifest.migration is not None:
        return _continue(query, manifest, manifest.migration, expiry, background_epochs)
    if request is None or request.plan == old.plan:
        return EpochLayout(old)
    return _begin(query, manifest, request, expiry, rows_moved_at_once)


def _begin(
    query: Query, manifest: Manifest, request: MigrationRequest, expiry: Expiry, rows_moved_at_once: int
) -> EpochLayout:
    if request.strategy == AUTO:
        raise InternalError("a migration must begin with a strategy", got=request.strategy)
    strategy = STRATEGIES[request.strategy]
    number, epoch = manifest.migrations + 1, manifest.epoch + 1
    old = layout_of(query, manifest.plan, manifest.state_ids)
    isolated = strategy.isolation == "always" or bool(request.isolated)
    # If the old plan does not run on, it cannot produce what a state still lacks.
    large = _larger_than(rows_moved_at_once, manifest) if strategy.runs_old_plan else frozenset()
    match = match_states(old, build_layout(query, request.plan), number, isolated=isolated, large=large)
    plans = match.plans
    migration = Migration(
        number=number,
        old_plan=manifest.plan,
        new_plan=str(request.plan),
        strategy=strategy.name,
        background=request.background and strategy.rebuilds_in_background,
        isolated=isolated,
        start_epoch=epoch,
        state_ids=dict(match.state_ids),
        borders=tuple(sorted(plans.moved_borders)),
        moved=tuple(sorted(plans.moved)),
        moving=dict.fromkeys(sorted(match.moving, key=lambda s: (len(s.streams), s)), epoch),
        handover=first_tables(plans.subplans, match.incomplete, plans.copies, epoch),
        latest_times={epoch: {name: stream.latest for name, stream in manifest.streams.items()}},
    )
    if strategy.runs_old_plan:
        layout, step = _both_plans(plans, migration, expiry)
    else:
        # The epoch rebuilds every state that the new plan lacks, and then runs the new plan alone.
        missing = sorted(match.empty, key=lambda state: len(state.streams))
        rebuilds = tuple(Rebuild(state, (UNBOUNDED,)) for state in missing)
        layout, step = plans.new, MigrationStep(migration=migration, handover=None, rebuilds=rebuilds)
    moved_from = old if match.moves else None
    return EpochLayout(layout, replace_field(step, begins=True, moved_from=moved_from, moves=match.moves))


def _sited(
    query: Query,
    manifest: Manifest,
    request: MigrationRequest | None,
    background_epochs: int | None,
    rows_moved_at_once: int,
) -> EpochLayout:
    """What runs in an epoch if streams live at sites."""
    old = layout_of(query, manifest.plan, manifest.state_ids)
    if manifest.migration is not None:
        migration = manifest.migration
        new = layout_of(query, migration.new_plan, migration.state_ids)
        return EpochLayout(*continue_switch(manifest, migration, old, new, background_epochs))
    if request is None or request.plan == old.plan:
        return EpochLayout(old)
    match = match_windows(query, old, build_layout(query, request.plan), manifest.migrations + 1)
    return EpochLayout(*begin_switch(manifest, old, match, rows_moved_at_once))


def _larger_than(rows: int, manifest: Manifest) -> frozenset[StateId]:
    """The states that have more rows."""
    counts: dict[tuple[StateId, Key], int] = {}
    for slice_ in manifest.slices:
        owner = slice_.owner
        if owner.kind == "index":
            counts[owner.state, owner.key] = counts.get((owner.state, owner.key), 0) + slice_.rows
    return frozenset(state for (state, _), count in counts.items() if count > rows)


def _continue(
    query: Query, manifest: Manifest, migration: Migration, expiry: Expiry, background_epochs: int | None
) -> EpochLayout:
    plans = plans_of(query, manifest, migration)
    layout, step = _both_plans(plans, migration, expiry)
    if not step.ends and background_epochs != 0:
        step = with_portion(step, plans, manifest, background_epochs)
    return EpochLayout(layout, step)


def plans_of(query: Query, manifest: Manifest, migration: Migration) -> PlanPair:
    """The two plans of a migration in progress."""
    return PlanPair(
        old=layout_of(query, manifest.plan, manifest.state_ids),
        new=layout_of(query, migration.new_plan, migration.state_ids),
        number=migration.number,
        isolated=migration.isolated,
        moved_borders=frozenset(migration.borders),
        moved=frozenset(migration.moved),
    )


def _both_plans(plans: PlanPair, migration: Migration, expiry: Expiry) -> tuple[Layout, MigrationStep]:
    """One epoch: of both plans, or of the new one alone if nothing is left for the old one to produce."""
    strategy = STRATEGIES[migration.strategy]
    defers = strategy.defers_results
    tables = expire(migration.handover, expiry, migration.latest_times)
    if not any(tables.values()):
        return plans.new, MigrationStep(migration=migration, handover=None, releases_results=defers)
    combined = combine(plans, tables, prunes=strategy.prunes)
    lacking = {entry.state for entries in tables.values() for entry in entries}
    rebuilding = {s: progress for s, progress in migration.rebuilding.items() if s in lacking}
    moving = {s: epoch for s, epoch in migration.moving.items() if s in lacking}
    # Results are deferred only as long as the old plan produces results.
    still_defers = defers and bool(tables.get(plans.new.root))
    step = MigrationStep(
        migration=replace(migration, handover=tables, rebuilding=rebuilding, moving=moving),
        handover=combined.handover,
        defers_results=still_defers,
        releases_results=defers and not still_defers,
    )
    return combined.layout, step


def after_epoch(query: Query, step: MigrationStep | None, manifest: Manifest) -> Migration | None:
    """The migration after the epoch of ``manifest``; None if there is none, or it has ended."""
    if step is None or step.ends:
        return None
    migration = step.migration
    if migration.strategy == SITE_SWITCH:
        return after_switch_epoch(step)
    if step.completed_state is None:
        return migration
    new = layout_of(query, migration.new_plan, migration.state_ids)
    epoch = manifest.epoch + 1
    latest = {name: stream.latest for name, stream in manifest.streams.items()}
    return replace(
        migration,
        handover=complete(migration.handover, new, step.completed_state, epoch),
        latest_times={**migration.latest_times, epoch: latest},
        rebuilding={s: progress for s, progress in migration.rebuilding.items() if s != step.completed_state},
        moving={s: moved_from for s, moved_from in migration.moving.items() if s != step.completed_state},
        completed=(*migration.completed, step.completed_state),
    )
