"""The lifecycle of a migration: its first epoch, the epochs in which both plans run, and its end.

Everything follows from the manifest and the intent, so an epoch that runs again does the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from dataclasses import replace as replace_field
from functools import lru_cache

from msgspec.structs import replace

from midstream.engine.epoch_filter import EpochRange
from midstream.engine.migration_step import MigrationStep, Rebuild
from midstream.errors import InternalError
from midstream.migration.combined_layout import combine, copies_of
from midstream.migration.handover_tables import bounds_of, complete, expire, first_tables, replaced_subplans
from midstream.migration.request import Request
from midstream.migration.state_match import match_states
from midstream.migration.strategies import AUTO, STRATEGIES, Strategy
from midstream.plan.build_layout import build_layout
from midstream.plan.layout import Layout
from midstream.plan.state_id import StateId
from midstream.plan.tree import parse_plan
from midstream.query.query import Query
from midstream.state.expiry import Expiry
from midstream.state.manifest import Manifest
from midstream.state.migration import HandoverEntry, Migration, RebuildProgress

UNBOUNDED = ()
"""Bounds within which all rows lie."""


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
    query: Query, manifest: Manifest, expiry: Expiry, request: Request | None, background_epochs: int | None
) -> EpochLayout:
    """What runs in the epoch after ``manifest``.

    ``background_epochs`` is the number of epochs whose rows may be rebuilt in the background; None for all.
    """
    old = layout_of(query, manifest.plan, manifest.state_ids)
    if manifest.migration is not None:
        return _continue(query, manifest, manifest.migration, expiry, background_epochs)
    if request is None or request.plan == old.plan:
        return EpochLayout(old)
    return _begin(query, manifest, request, expiry)


def _begin(query: Query, manifest: Manifest, request: Request, expiry: Expiry) -> EpochLayout:
    if request.strategy == AUTO:
        raise InternalError("a migration must begin with a strategy", got=request.strategy)
    strategy = STRATEGIES[request.strategy]
    number, epoch = manifest.migrations + 1, manifest.epoch + 1
    old = layout_of(query, manifest.plan, manifest.state_ids)
    match = match_states(old, build_layout(query, request.plan), number)
    moved_from, moves = (old, match.moves) if match.moves else (None, ())
    isolated = strategy.isolation == "always" or bool(request.isolated)
    plans = LayoutPair(old, match.layout, strategy, number, isolated=isolated)
    empty = match.empty
    if isolated:
        empty |= {move.target for move in moves} | set(plans.copies.values())
        moved_from, moves = None, ()
    migration = Migration(
        number=number,
        old_plan=manifest.plan,
        new_plan=str(request.plan),
        strategy=strategy.name,
        background=request.background and strategy.rebuilds_in_background,
        isolated=isolated,
        start_epoch=epoch,
        state_ids=dict(match.state_ids),
        handover=first_tables(plans.subplans, empty, plans.copies, epoch),
        latest_times={epoch: {name: stream.latest for name, stream in manifest.streams.items()}},
    )
    if strategy.runs_old_plan:
        layout, step = plans.epoch(migration, expiry)
    else:
        # The epoch rebuilds every state that the new plan lacks, and then runs the new plan alone.
        missing = sorted(empty, key=lambda state: len(state.streams))
        rebuilds = tuple(Rebuild(state, (UNBOUNDED,)) for state in missing)
        layout, step = match.layout, MigrationStep(migration=migration, handover=None, rebuilds=rebuilds)
    return EpochLayout(layout, replace_field(step, begins=True, moved_from=moved_from, moves=moves))


def _continue(
    query: Query, manifest: Manifest, migration: Migration, expiry: Expiry, background_epochs: int | None
) -> EpochLayout:
    layout, step = plans_of(query, manifest, migration).epoch(migration, expiry)
    if not step.ends and migration.background and background_epochs != 0:
        new = layout_of(query, migration.new_plan, migration.state_ids)
        step = _with_rebuild(step, new, manifest, background_epochs)
    return EpochLayout(layout, step)


def plans_of(query: Query, manifest: Manifest, migration: Migration) -> LayoutPair:
    """The two plans of a migration in progress."""
    return LayoutPair(
        layout_of(query, manifest.plan, manifest.state_ids),
        layout_of(query, migration.new_plan, migration.state_ids),
        STRATEGIES[migration.strategy],
        migration.number,
        isolated=migration.isolated,
    )


class LayoutPair:
    """Two plans that run side by side."""

    def __init__(self, old: Layout, new: Layout, strategy: Strategy, number: int, *, isolated: bool) -> None:
        shared = old.states & new.states
        self.new = new
        self.old = old
        self.strategy = strategy
        self.subplans = replaced_subplans(old, new, shared)
        self.copies = copies_of(self.subplans, shared, number) if isolated else {}

    def epoch(self, migration: Migration, expiry: Expiry) -> tuple[Layout, MigrationStep]:
        """One epoch: of both plans, or of the new one alone if nothing is left for the old one to produce."""
        defers = self.strategy.defers_results
        tables = expire(migration.handover, expiry, migration.latest_times)
        if not any(tables.values()):
            return self.new, MigrationStep(migration=migration, handover=None, releases_results=defers)
        combined = combine(
            self.old, self.new, self.subplans, tables, prunes=self.strategy.prunes, copies=self.copies
        )
        lacking = {entry.state for entries in tables.values() for entry in entries}
        rebuilding = {s: progress for s, progress in migration.rebuilding.items() if s in lacking}
        # Results are deferred only as long as the old plan produces results.
        still_defers = defers and bool(tables.get(self.new.root))
        step = MigrationStep(
            migration=replace(migration, handover=tables, rebuilding=rebuilding),
            handover=combined.handover,
            defers_results=still_defers,
            releases_results=defers and not still_defers,
        )
        return combined.layout, step


def _with_rebuild(
    step: MigrationStep, new: Layout, manifest: Manifest, background_epochs: int | None
) -> MigrationStep:
    """The step with a rebuild of the next part of the lowest state that lacks rows, newest rows first."""
    migration = step.migration
    entries = [entry for table in migration.handover.values() for entry in table]
    state = min((entry.state for entry in entries), key=lambda s: (len(s.streams), s))
    lacking = [entry for entry in entries if entry.state == state]
    progress = migration.rebuilding.get(state) or _first_progress(state, lacking)
    oldest = _oldest_epoch(manifest, new, progress)
    first = oldest if background_epochs is None else max(progress.from_epoch - background_epochs, oldest)
    completes = first <= oldest
    # The last part has all remaining rows, however old.
    epochs = EpochRange(progress.stream, 0 if completes else first, progress.from_epoch)
    rebuilding = {**migration.rebuilding, state: RebuildProgress(progress.stream, first)}
    return replace_field(
        step,
        migration=replace(migration, rebuilding=rebuilding),
        rebuilds=(Rebuild(state, bounds_of(lacking), epochs),),
        completes=state if completes else None,
    )


def _first_progress(state: StateId, entries: Sequence[HandoverEntry]) -> RebuildProgress:
    """A rebuild proceeds by the arrival epochs of one stream, the one with the lowest bound."""
    bounds = {s: max(entry.bounds[s] for entry in entries) for s in state.streams}
    stream = min(bounds, key=lambda s: bounds[s])
    return RebuildProgress(stream, bounds[stream])


def _oldest_epoch(manifest: Manifest, new: Layout, progress: RebuildProgress) -> int:
    """The first epoch of rows in the base state of the stream."""
    base = next(state for state in new.states if state.streams == (progress.stream,))
    epochs = [s.first_epoch for s in manifest.slices if s.owner.state == base and s.owner.kind == "index"]
    return min(epochs, default=progress.from_epoch)


def after_epoch(query: Query, step: MigrationStep | None, manifest: Manifest) -> Migration | None:
    """The migration after the epoch of ``manifest``; None if there is none, or it has ended."""
    if step is None or step.ends:
        return None
    migration = step.migration
    if step.completes is None:
        return migration
    new = layout_of(query, migration.new_plan, migration.state_ids)
    epoch = manifest.epoch + 1
    latest = {name: stream.latest for name, stream in manifest.streams.items()}
    return replace(
        migration,
        handover=complete(migration.handover, new, step.completes, epoch),
        latest_times={**migration.latest_times, epoch: latest},
        rebuilding={s: progress for s, progress in migration.rebuilding.items() if s != step.completes},
        completed=(*migration.completed, step.completes),
    )
