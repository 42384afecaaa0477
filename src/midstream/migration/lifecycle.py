"""The course of a migration: from a request, through the epochs that both plans run in, to its end.

Everything follows from what is committed, so an epoch that is run again, by whatever driver, goes the
same way.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace as replace_field
from functools import lru_cache

from msgspec.structs import replace

from midstream.engine.program import MigrationStep, Rebuild
from midstream.errors import CheckpointError, InternalError
from midstream.migration.combined_layout import copies_of, merge
from midstream.migration.handover import bounds_of, complete, expire, first_tables, replaced_subplans
from midstream.migration.request import Request
from midstream.migration.state_match import match
from midstream.plan.build_layout import build_layout
from midstream.plan.layout import Layout, StateId, plain, streams_of
from midstream.plan.tree import parse_plan
from midstream.query.query import Query
from midstream.state.manifest import Manifest
from midstream.state.migration import HandoverEntry, Migration, RebuildProgress, Strategy
from midstream.state.purge import Purge

EVERYTHING = ()
"""A bound that excludes nothing."""


@lru_cache(maxsize=64)
def _cached_layout(query: Query, plan: str, names: tuple[tuple[StateId, StateId], ...]) -> Layout:
    return build_layout(query, parse_plan(plan, query.names)).renamed(dict(names))


def layout_of(query: Query, plan: str, names: Mapping[StateId, StateId]) -> Layout:
    """The layout of a plan whose states have these ids."""
    return _cached_layout(query, plan, tuple(sorted(names.items())))


def plan_epoch(
    query: Query, manifest: Manifest, purge: Purge, request: Request | None, pace: int | None
) -> MigrationStep:
    """What the epoch after ``manifest`` does.

    ``pace`` is how many epochs' worth of a missing state may be computed in the background.
    """
    old = layout_of(query, manifest.plan, manifest.states)
    if manifest.migration is not None:
        return _go_on(query, manifest, manifest.migration, purge, pace)
    if request is None or request.plan == old.plan:
        return MigrationStep(old, manifest.plan, manifest.states)
    return _begin(query, manifest, request, purge)


def _begin(query: Query, manifest: Manifest, request: Request, purge: Purge) -> MigrationStep:
    number, epoch = manifest.migrations + 1, manifest.epoch + 1
    if request.strategy == "auto":
        raise InternalError("a migration must begin with a strategy", got=request.strategy)
    old = layout_of(query, manifest.plan, manifest.states)
    found = match(old, build_layout(query, request.plan), number)
    moved_from, moves = (old, found.moves) if found.moves else (None, ())
    isolated = request.strategy == "parallel_track" or bool(request.isolated)
    both = _Both(old, found.layout, request.strategy, number, isolated=isolated)
    empty = found.empty
    if isolated:
        empty |= {move.target for move in moves} | set(both.copies.values())
        moved_from, moves = None, ()
    migration = Migration(
        number=number,
        old_plan=manifest.plan,
        plan=str(request.plan),
        strategy=request.strategy,
        background=request.background and request.strategy == "hybrid",
        isolated=isolated,
        start=epoch,
        states=dict(found.names),
        tables=first_tables(both.tasks, empty, both.copies, epoch),
        marks={epoch: {name: mark.latest for name, mark in manifest.streams.items()}},
    )
    if request.strategy == "moving_state":
        # The epoch brings every state of the new plan up to date first, and then runs the new plan alone.
        missing = sorted(empty, key=lambda s: len(streams_of(s)))
        rebuilds = tuple(Rebuild(state, (EVERYTHING,)) for state in missing)
        step = MigrationStep(found.layout, migration.plan, found.names, ended=migration, rebuilds=rebuilds)
    else:
        step = both.step(manifest, migration, purge)
    return replace_field(step, begins=True, moved_from=moved_from, moves=moves)


def _go_on(
    query: Query, manifest: Manifest, migration: Migration, purge: Purge, pace: int | None
) -> MigrationStep:
    old = layout_of(query, manifest.plan, manifest.states)
    new = layout_of(query, migration.plan, migration.states)
    both = _Both(old, new, migration.strategy, migration.number, isolated=migration.isolated)
    step = both.step(manifest, migration, purge)
    if step.migration is None or not migration.background or pace == 0:
        return step
    return _with_background(step, step.migration, new, manifest, pace)


class _Both:
    """Two plans that run side by side."""

    def __init__(self, old: Layout, new: Layout, strategy: Strategy, number: int, *, isolated: bool) -> None:
        shared = old.states & new.states
        self.new = new
        self.old = old
        self.tasks = replaced_subplans(old, new, shared)
        self.tracks = strategy == "parallel_track"
        self.copies = copies_of(self.tasks, shared, number) if isolated else {}

    def step(self, manifest: Manifest, migration: Migration, purge: Purge) -> MigrationStep:
        """One epoch: both plans, or the new one alone if nothing is left for the old one to make."""
        tables = expire(migration.tables, purge, migration.marks)
        if not any(tables.values()):
            return MigrationStep(
                self.new, migration.plan, migration.states, ended=migration, releases=self.tracks
            )
        layout = merge(self.old, self.new, self.tasks, tables, early=not self.tracks, copies=self.copies)
        lacking = {entry.scope for entries in tables.values() for entry in entries}
        computed = {
            state: epoch_range for state, epoch_range in migration.computed.items() if state in lacking
        }
        migration = replace(migration, tables=tables, computed=computed)
        # Once the old plan makes no results any more, those of the new one have nothing to wait for.
        holds = self.tracks and bool(tables.get(self.new.root))
        releases = self.tracks and not holds
        return MigrationStep(
            layout, manifest.plan, manifest.states, migration, holds=holds, releases=releases
        )


def _with_background(
    step: MigrationStep, migration: Migration, new: Layout, manifest: Manifest, pace: int | None
) -> MigrationStep:
    """Let the epoch also compute the next piece of the lowest state that lacks rows, newest rows first."""
    entries = [entry for table in migration.tables.values() for entry in table]
    state = min((entry.scope for entry in entries), key=lambda s: (len(streams_of(s)), s))
    mine = [entry for entry in entries if entry.scope == state]
    epoch_range = migration.computed.get(state) or _first_piece(state, mine)
    oldest = _oldest(manifest, new, epoch_range.stream, epoch_range.begin)
    begin = oldest if pace is None else max(epoch_range.begin - pace, oldest)
    finishes = begin <= oldest
    # The last piece has all that is left, however old.
    rebuild = Rebuild(
        state, bounds_of(mine), (epoch_range.stream, 0 if finishes else begin, epoch_range.begin)
    )
    computed = {**migration.computed, state: RebuildProgress(epoch_range.stream, begin)}
    return replace_field(
        step,
        migration=replace(migration, computed=computed),
        rebuilds=(rebuild,),
        finishes=state if finishes else None,
    )


def _first_piece(state: StateId, entries: Sequence[HandoverEntry]) -> RebuildProgress:
    """Pieces are cut by when the component of one stream arrived: of that with the fewest epochs to go."""
    bounds = {s: max(entry.bounds[s] for entry in entries) for s in streams_of(state)}
    stream = min(bounds, key=lambda s: bounds[s])
    return RebuildProgress(stream, bounds[stream])


def _oldest(manifest: Manifest, new: Layout, stream: str, default: int) -> int:
    """The first epoch from which the state of a stream may still hold rows."""
    base = next(state for state in new.states if streams_of(state) == (stream,))
    epochs = [s.lower for s in manifest.slices if s.owner.state == base and s.owner.kind == "index"]
    return min(epochs, default=default)


def check_migration(query: Query, manifest: Manifest) -> None:
    """Refuse a manifest whose migration could not have come about."""
    names = {**manifest.states, **(manifest.migration.states if manifest.migration else {})}
    wrong = [f"{plain_id} as {name}" for plain_id, name in names.items() if plain(name) != plain_id]
    migration = manifest.migration
    if migration is not None and not wrong:
        old = layout_of(query, manifest.plan, manifest.states)
        new = layout_of(query, migration.plan, migration.states)
        both = _Both(old, new, migration.strategy, migration.number, isolated=migration.isolated)
        known = new.states | set(both.copies.values())
        if migration.isolated and migration.background:
            wrong.append("plans that are kept apart, and background work")
        if set(migration.tables) != {task.root for task in both.tasks}:
            wrong.append(f"tables of {', '.join(migration.tables) or 'nothing'}")
        for entry in (entry for entries in migration.tables.values() for entry in entries):
            marked = all(set(migration.marks.get(e, ())) == set(query.names) for e in entry.bounds.values())
            if entry.scope not in known or set(entry.bounds) != set(streams_of(entry.scope)) or not marked:
                wrong.append(f"an entry of {entry.scope}")
        odd = [s for s, epoch_range in migration.computed.items() if epoch_range.stream not in streams_of(s)]
        wrong += [f"pieces of {state}" for state in odd]
    if wrong:
        raise CheckpointError(
            "a manifest must have a migration that its plans allow",
            got=wrong[0],
            hint="restore its manifests from a copy",
        )


def after_epoch(query: Query, step: MigrationStep, manifest: Manifest) -> Migration | None:
    """The migration as it stands after the epoch; ``manifest`` has the marks of after it."""
    migration = step.migration
    if migration is None or step.finishes is None:
        return migration
    new = layout_of(query, migration.plan, migration.states)
    epoch = manifest.epoch + 1
    marks = {name: mark.latest for name, mark in manifest.streams.items()}
    return replace(
        migration,
        tables=complete(migration.tables, new, step.finishes, epoch),
        marks={**migration.marks, epoch: marks},
        computed={state: e for state, e in migration.computed.items() if state != step.finishes},
        completed=(*migration.completed, step.finishes),
    )
