"""Portions: what an epoch of a migration rebuilds or moves of a state that lacks rows, newest rows first."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace as replace_field

from msgspec.structs import replace

from midstream.engine.epoch_filter import EpochRange, EpochSpan
from midstream.engine.migration_step import MigrationStep, Move, Rebuild
from midstream.migration.handover_tables import bounds_of
from midstream.migration.plan_pair import PlanPair
from midstream.plan.state_id import StateId
from midstream.state.manifest import Manifest
from midstream.state.migration import HandoverEntry, RebuildProgress


def with_portion(
    step: MigrationStep, plans: PlanPair, manifest: Manifest, background_epochs: int | None
) -> MigrationStep:
    """The step with the next portion of the lowest state that lacks rows, if that is to be replaced.

    States are moved whether there is background work or not, but rebuilt only if there is.
    """
    migration = step.migration
    entries = [entry for table in migration.handover.values() for entry in table]
    replaced = [e for e in entries if migration.background or e.state in migration.moving]
    if not replaced:
        return step
    state = min((entry.state for entry in replaced), key=lambda s: (len(s.streams), s))
    if state in migration.moving:
        return _with_move(step, plans, manifest, state, background_epochs)
    lacking = [entry for entry in entries if entry.state == state]
    return _with_rebuild(step, plans, manifest, lacking, background_epochs)


def _with_move(
    step: MigrationStep, plans: PlanPair, manifest: Manifest, state: StateId, background_epochs: int | None
) -> MigrationStep:
    migration = step.migration
    end = migration.moving[state]
    bases = (
        s for s in plans.old.states | plans.new.states if s.is_base and set(s.streams) <= set(state.streams)
    )
    first = _first_epoch(manifest, bases, end, background_epochs)
    source = plans.sources_of([state])[state]
    return replace_field(
        step,
        migration=replace(migration, moving={**migration.moving, state: first}),
        moved_from=plans.old,
        moves=(Move(source, state, EpochSpan(first, end)),),
        completed_state=None if first else state,
    )


def _with_rebuild(
    step: MigrationStep,
    plans: PlanPair,
    manifest: Manifest,
    lacking: Sequence[HandoverEntry],
    background_epochs: int | None,
) -> MigrationStep:
    migration, state = step.migration, lacking[0].state
    progress = migration.rebuilding.get(state) or _first_progress(state, lacking)
    bases = (s for s in plans.new.states if s.streams == (progress.stream,))
    first = _first_epoch(manifest, bases, progress.from_epoch, background_epochs)
    rebuilding = {**migration.rebuilding, state: RebuildProgress(progress.stream, first)}
    epochs = EpochRange(progress.stream, first, progress.from_epoch)
    return replace_field(
        step,
        migration=replace(migration, rebuilding=rebuilding),
        rebuilds=(Rebuild(state, bounds_of(lacking), epochs),),
        completed_state=None if first else state,
    )


def _first_progress(state: StateId, entries: Sequence[HandoverEntry]) -> RebuildProgress:
    """A rebuild proceeds by the arrival epochs of one stream, the one with the lowest bound."""
    bounds = {s: max(entry.bounds[s] for entry in entries) for s in state.streams}
    stream = min(bounds, key=lambda s: bounds[s])
    return RebuildProgress(stream, bounds[stream])


def _first_epoch(
    manifest: Manifest, bases: Iterable[StateId], end: int, background_epochs: int | None
) -> int:
    """The first epoch of a portion that ends before ``end``; 0 if it is the last, which has all that is left.

    Rows that are left consist of rows of the base states.
    """
    states = set(bases)
    index_slices = (s for s in manifest.slices if s.owner.kind == "index" and s.owner.state in states)
    oldest = min((s.first_epoch for s in index_slices), default=end)
    first = oldest if background_epochs is None else end - background_epochs
    return first if first > oldest else 0
