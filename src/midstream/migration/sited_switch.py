"""Changing to another plan of streams that live at sites.

Both plans give the same results, so at the switch nothing has to be held back, and nothing is made twice: it
is the boundary between two epochs. What has to be there by then are the windows that the new plan searches.

A window that both plans have, at the same site and searched by the same keys, stays as it is. Another one
gets the new rows of its stream from the first epoch of the migration on, beside the old plan, and the earlier
ones from the site of the stream: in portions, newest first, and only those that have not expired. When all
windows are complete, the next epoch runs the new plan. If little is lacking, it is sent in the first epoch,
which runs the new plan at once.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from dataclasses import replace as replace_field

from msgspec.structs import replace

from midstream.engine.epoch_filter import EpochSpan
from midstream.engine.migration_step import MigrationStep, Move
from midstream.errors import InternalError
from midstream.migration.strategies import SITE_SWITCH
from midstream.plan.handover import Handover
from midstream.plan.layout import Fragment, FragmentInput, Key, Layout
from midstream.plan.sited_layout import window_at
from midstream.plan.state_id import StateId
from midstream.query.query import Query
from midstream.state.manifest import Manifest
from midstream.state.migration import Migration

BESIDE = Handover(sides={}, restrictions={})
"""The old plan goes on as it was while windows are copied."""


@dataclass(frozen=True)
class WindowMatch:
    """The windows of a new plan."""

    new: Layout
    """The new plan, with the final ids of its windows."""
    state_ids: dict[StateId, StateId]
    """The final ids, where they differ from what the plan calls them."""
    moves: tuple[Move, ...]
    """Those that the old plan lacks, and where their rows are."""


def match_windows(query: Query, old: Layout, new: Layout, migration: int) -> WindowMatch:
    """Which windows a new plan shares with the old one, and which start without rows."""
    if query.topology is None:
        raise InternalError("only plans with sites must have windows to match", got=str(new.plan))
    known = {s.label: (s, frozenset(keys)) for s, keys in _windows(old)}
    ids: dict[StateId, StateId] = {}
    moves: list[Move] = []
    for window, keys in _windows(new):
        stored, stored_keys = known.get(window.label, (None, None))
        if stored is not None and stored_keys == frozenset(keys):
            ids[window] = stored
            continue
        ids[window] = window.started_by(migration)
        (stream,) = window.streams
        home, _ = known[window_at(stream, query.topology.site_of[stream])]
        moves.append(Move(stored or home, ids[window]))
    changed = {window: state for window, state in ids.items() if window != state}
    return WindowMatch(new.renamed(changed), changed, tuple(moves))


def begin_switch(
    manifest: Manifest, old: Layout, match: WindowMatch, rows_moved_at_once: int
) -> tuple[Layout, MigrationStep]:
    """The first epoch of a migration to another plan."""
    epoch = manifest.epoch + 1
    counts = {move.source: _rows(manifest, move.source) for move in match.moves}
    waits = sum(counts[move.source] for move in match.moves) > rows_moved_at_once
    migration = Migration(
        number=manifest.migrations + 1,
        old_plan=manifest.plan,
        new_plan=str(match.new.plan),
        strategy=SITE_SWITCH,
        background=True,
        isolated=False,
        start_epoch=epoch,
        state_ids=match.state_ids,
        moved=() if waits else tuple(move.target for move in match.moves),
        moving={move.target: epoch for move in match.moves} if waits else {},
        handover={},
        latest_times={},
    )
    if waits:
        return _beside(old, match.new), MigrationStep(migration=migration, handover=BESIDE, begins=True)
    step = MigrationStep(migration=migration, handover=None, begins=True, moves=match.moves)
    return match.new, replace_field(step, moved_from=old if match.moves else None)


def continue_switch(
    manifest: Manifest, migration: Migration, old: Layout, new: Layout, background_epochs: int | None
) -> tuple[Layout, MigrationStep]:
    """A later epoch: another portion of a window, or the switch if all are complete."""
    if not migration.moving:
        return new, MigrationStep(migration=migration, handover=None)
    step = MigrationStep(migration=migration, handover=BESIDE)
    state = min(migration.moving)
    source, end = source_of(old, state), migration.moving[state]
    oldest = min((s.first_epoch for s in manifest.slices if s.owner.state == source), default=end)
    if oldest < end and background_epochs == 0:
        return _beside(old, new), step
    first = oldest if background_epochs is None else end - background_epochs
    first = first if first > oldest else 0
    step = replace_field(
        step,
        migration=replace(migration, moving={**migration.moving, state: first}),
        moved_from=old,
        moves=(Move(source, state, EpochSpan(first, end)),),
        completed_state=None if first else state,
    )
    return _beside(old, new), step


def after_switch_epoch(step: MigrationStep) -> Migration:
    """The migration after an epoch that has not ended it."""
    migration, completed = step.migration, step.completed_state
    if completed is None:
        return migration
    return replace(
        migration,
        moving={state: epoch for state, epoch in migration.moving.items() if state != completed},
        completed=(*migration.completed, completed),
    )


def windows_to_copy(query: Query, old: Layout, new: Layout) -> list[StateId]:
    """The windows that a new plan would have to copy."""
    return [move.target for move in match_windows(query, old, new, old.unused_number).moves]


def source_of(old: Layout, state: StateId) -> StateId:
    """The window of the old plan that has the rows which a window of the new one lacks."""
    known = [window for window, _ in _windows(old)]
    same_site = [window for window in known if window.label == state.label]
    homes = [w for f in old.fragments for w in f.counted_inputs if w.streams == state.streams]
    return (same_site or homes)[0]


def lacking_windows(old: Layout, new: Layout) -> dict[StateId, tuple[Key, ...]]:
    """The windows of a new plan that the old one does not have, with the keys by which they are searched."""
    known = {window for window, _ in _windows(old)}
    return {window: keys for window, keys in _windows(new) if window not in known}


def _windows(layout: Layout) -> Iterable[tuple[StateId, tuple[Key, ...]]]:
    return ((state, keys) for f in layout.fragments for state, keys in f.arrangements.items())


def _rows(manifest: Manifest, state: StateId) -> int:
    by_key: dict[Key, int] = {}
    for slice_ in manifest.slices:
        if slice_.owner.kind == "index" and slice_.owner.state == state:
            by_key[slice_.owner.key] = by_key.get(slice_.owner.key, 0) + slice_.rows
    return max(by_key.values(), default=0)


def _beside(old: Layout, new: Layout) -> Layout:
    """The old plan, with the windows that it lacks as inputs that it stores and does not search."""
    inputs = {input_.id: input_ for fragment in new.fragments for input_ in fragment.inputs}
    lacking = lacking_windows(old, new)
    fragments = list(old.fragments)
    for site in dict.fromkeys(window.site for window in lacking):
        here = {window: keys for window, keys in lacking.items() if window.site == site}
        added = tuple(inputs[window] for window in here)
        place = next((i for i, f in enumerate(fragments) if f.site == site and f.stage == 0), None)
        if place is None:
            fragments.append(_keeper(len(fragments), old, site, added, tuple(here.items())))
        else:
            found = fragments[place]
            stored_windows = (*found.stored_windows, *here.items())
            fragments[place] = replace_field(
                found, inputs=(*found.inputs, *added), stored_windows=stored_windows
            )
    sink = next(f for f in fragments if old.sink is not None and f.id == old.sink.id)
    return Layout(old.plan, tuple(fragments), sink)


def _keeper(
    number: int,
    old: Layout,
    site: str,
    inputs: tuple[FragmentInput, ...],
    stored_windows: tuple[tuple[StateId, tuple[Key, ...]], ...],
) -> Fragment:
    key = old.fragments[0].key
    return Fragment(
        id=number, key=key, stage=0, inputs=inputs, nodes=(), site=site, stored_windows=stored_windows
    )
