"""From a decision about memory to what the next epoch does: its cuts, cleanups, marks and holds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from msgspec.structs import replace as replace_struct

from midstream.engine.memory_step import Cleanup, MemoryStep, StateCuts
from midstream.engine.migration_step import MigrationStep
from midstream.engine.places import Places
from midstream.engine.spill_retention import SpillRetention
from midstream.memory.holds import holds_of
from midstream.memory.sizes import GroupSizes, group_sizes
from midstream.migration.lifecycle import layout_of
from midstream.plan.build_layout import joined_inputs
from midstream.plan.fragment_name import FragmentName, fragment_name, same_fragments
from midstream.plan.layout import Fragment, Key, Layout
from midstream.plan.state_id import StateId
from midstream.query.query import Query
from midstream.state.expiry import Expiry
from midstream.state.manifest import Manifest
from midstream.state.memory import Cuts, Hold, Mark, Memory, MemoryChange
from midstream.state.slices import Slice

_MERGED_SHARE = 0.25
"""The share of the budget that slices may have that are merged: merging takes memory of their size, twice."""
_SMALL_MERGE = 4 << 20
"""Merging slices with so many bytes does no harm, however small the budget is: it limits their number."""


@dataclass(frozen=True)
class MemoryDecision:
    """What an epoch is to do about memory."""

    spills: Mapping[FragmentName, frozenset[int]] = field(default_factory=dict)
    """Groups that are spilled: rows from before the epoch are not probed in it."""
    cleanups: Mapping[FragmentName, Mapping[int, Cuts]] = field(default_factory=dict)
    """Groups that are cleaned up, and the cuts that they have then: none, if a group comes back as a whole;
    the epoch itself, if all its generations become one that is not probed; or the last ones that it had."""
    changes: tuple[MemoryChange, ...] = ()
    """The same in figures, and why."""


@dataclass(frozen=True, kw_only=True)
class MemoryContext:
    """What a step is made from."""

    query: Query
    places: Places
    epoch: int
    memory: Memory
    """After the last epoch."""
    watermarks: Mapping[str, int | None]
    latest: int | None
    """The newest event time of all streams."""
    plan: Layout
    """The running plan, during a migration the old one."""
    new_plan: Layout | None = None
    copies: Mapping[StateId, StateId] = field(default_factory=dict)
    """The copies of shared states that an isolated new plan has."""
    windows_have_changed: bool = False
    """Whether rows are stored from before a change of the windows."""

    @property
    def fragment_names(self) -> frozenset[FragmentName]:
        """The names of the fragments of the running plans."""
        return frozenset(fragment_name(f) for layout in self.layouts for f in layout.fragments)

    @property
    def may_spill(self) -> bool:
        """Whether groups may be spilled: not while fragments change, nor while windows have."""
        keeps = self.new_plan is None or same_fragments(self.plan, self.new_plan)
        return keeps and not self.windows_have_changed

    @property
    def may_restore(self) -> bool:
        """Whether groups may come back: not during a migration, since both plans have states."""
        return self.new_plan is None

    def during(self, step: MigrationStep | None) -> MemoryContext:
        """The context of an epoch that does this step of a migration, or none."""
        if step is None:
            return self
        migration = step.migration
        new_plan = layout_of(self.query, migration.new_plan, migration.state_ids)
        copies = step.handover.copies if step.handover is not None else {}
        return replace(self, new_plan=new_plan, copies=copies)

    @property
    def layouts(self) -> list[Layout]:
        """The layouts of the running plans."""
        return [layout for layout in (self.plan, self.new_plan) if layout is not None]

    def sizes(self, slices: Sequence[Slice]) -> GroupSizes:
        """The sizes of the groups before the epoch."""
        facts = self.plan, self.new_plan, self.copies, self.memory, self.places, slices
        return _last_sizes.of(facts, lambda: self._sizes(slices))

    def _sizes(self, slices: Sequence[Slice]) -> GroupSizes:
        return group_sizes(self.layouts, state_cuts(self, self.memory), slices, self.places)

    def retention(self, expiry: Expiry) -> SpillRetention:
        """Which stored rows are of use when the epoch begins."""
        states = state_cuts(self, self.memory)
        return SpillRetention(expiry, states, self.memory.marks, self.places)

    @cached_property
    def holds(self) -> tuple[Hold, ...]:
        """What fragments owe after the last epoch."""
        return holds_of(self.memory, frozenset(self.query.names))


class _LastSizes:
    """The sizes that were asked for last: for the progress of an epoch, and by the next one."""

    def __init__(self) -> None:
        self._last: tuple[tuple[object, ...], GroupSizes] | None = None

    def of(self, facts: tuple[object, ...], sizes: Callable[[], GroupSizes]) -> GroupSizes:
        """The sizes that follow from some facts."""
        last = self._last
        if last is None or last[0] != facts:
            last = self._last = facts, sizes()
        return last[1]


_last_sizes = _LastSizes()


def memory_context(query: Query, manifest: Manifest, places: Places) -> MemoryContext:
    """The context of the epoch after ``manifest``, before it is known what it does about a migration."""
    context = MemoryContext(
        query=query,
        places=places,
        epoch=manifest.epoch + 1,
        memory=manifest.memory,
        watermarks={name: stream.watermark for name, stream in manifest.streams.items()},
        latest=max((s.latest for s in manifest.streams.values() if s.latest is not None), default=None),
        plan=layout_of(query, manifest.plan, manifest.state_ids),
        windows_have_changed=bool(manifest.window_changes),
    )
    if manifest.migration is None:
        return context
    new_plan = layout_of(query, manifest.migration.new_plan, manifest.migration.state_ids)
    return replace(context, new_plan=new_plan)


def memory_step(
    context: MemoryContext,
    decision: MemoryDecision,
    budget: int | None = None,
    *,
    counts_groups: bool,
    counts_flows: bool,
) -> MemoryStep | None:
    """What the next epoch does about memory; None if groups are not counted, and none is or was spilled."""
    memory = context.memory
    fragments = {fragment_name(fragment): fragment for fragment in context.plan.fragments}
    if not counts_groups and memory == Memory() and not decision.spills:
        return None
    cleanups = tuple(
        _cleanup(context, name, fragments[name], remaining) for name, remaining in decision.cleanups.items()
    )
    cuts = _cuts_after(context, decision)
    mark = Mark(dict(context.watermarks), context.latest, context.holds)
    epochs = sorted({epoch for groups in cuts.values() for of_group in groups.values() for epoch in of_group})
    after = Memory(
        cuts=cuts,
        marks={epoch: memory.marks.get(epoch, mark) for epoch in epochs},
        rebuilt=_rebuilt_after(context, cleanups, fragments),
        statistics=memory.statistics if counts_flows else {},
        changes=decision.changes,
    )
    return MemoryStep(
        after=after,
        states=state_cuts(context, after),
        cleanups=cleanups,
        holds=context.holds,
        counts_groups=counts_groups,
        counts_flows=counts_flows,
        max_merged_bytes=None if budget is None else max(_SMALL_MERGE, round(_MERGED_SHARE * budget)),
    )


def state_cuts(context: MemoryContext, memory: Memory) -> dict[StateId, StateCuts]:
    """What spilling means for each state of the running plans."""
    states: dict[StateId, StateCuts] = {}
    groups = context.places.groups
    for fragment in (fragment for layout in context.layouts for fragment in layout.fragments):
        cuts = memory.cuts.get(fragment_name(fragment), {})
        for state in fragment.inputs_by_id if cuts else ():
            states[state] = StateCuts(groups, True, cuts, {})
        for state in fragment.arrangements.keys() - fragment.inputs_by_id.keys():
            rebuilt = memory.rebuilt.get(state, {})
            if cuts or rebuilt:
                states[state] = StateCuts(groups, False, cuts, rebuilt)
        for state in fragment.arrangements.keys() & context.copies.keys() if cuts else ():
            # A copy started empty, and what groups owe is made from the states that are copied.
            states[context.copies[state]] = StateCuts(groups, False, cuts, {})
    return states


def without_unused(memory: Memory, slices: Iterable[Slice], places: Places) -> Memory:
    """The memory after an epoch, without what it says of slices that are gone."""
    if not memory.rebuilt:
        return memory
    oldest: dict[tuple[StateId, Key], dict[int, int]] = {}
    for slice_ in slices:
        owner = slice_.owner
        for reader in places.readers(slice_) if owner.state in memory.rebuilt else ():
            of_state = oldest.setdefault((owner.state, owner.key), {})
            of_state[reader] = min(slice_.last_epoch, of_state.get(reader, slice_.last_epoch))
    used: dict[StateId, dict[int, int]] = {}
    for (state, key), by_reader in oldest.items():
        for group, epoch in memory.rebuilt[state].items():
            if any(by_reader.get(holder, epoch) < epoch for holder in places.of_key(key).holders(group)):
                used.setdefault(state, {})[group] = epoch
    rebuilt = {state: dict(sorted(used[state].items())) for state in memory.rebuilt if state in used}
    return replace_struct(memory, rebuilt=rebuilt)


def _cleanup(
    context: MemoryContext, name: FragmentName, fragment: Fragment, remaining: Mapping[int, Cuts]
) -> Cleanup:
    generations = {}
    for group, after in remaining.items():
        before = context.memory.cuts[name][group]
        if after in ((), (context.epoch,)):
            generations[group] = (*before, context.epoch)
        else:
            generations[group] = (*before[: len(before) - len(after)], after[0])
    restored = frozenset(group for group, after in remaining.items() if not after)
    return Cleanup(name, joined_inputs(context.query, fragment), generations, restored)


def _cuts_after(context: MemoryContext, decision: MemoryDecision) -> dict[FragmentName, dict[int, Cuts]]:
    after: dict[FragmentName, dict[int, Cuts]] = {}
    for name in sorted({*context.memory.cuts, *decision.spills}):
        groups = {**context.memory.cuts.get(name, {}), **decision.cleanups.get(name, {})}
        for group in decision.spills.get(name, ()):
            groups[group] = (*groups.get(group, ()), context.epoch)
        if spilled := {group: cuts for group, cuts in sorted(groups.items()) if cuts}:
            after[name] = spilled
    return after


def _rebuilt_after(
    context: MemoryContext, cleanups: Iterable[Cleanup], fragments: Mapping[FragmentName, Fragment]
) -> dict[StateId, dict[int, int]]:
    rebuilt = {state: dict(groups) for state, groups in context.memory.rebuilt.items()}
    for cleanup in cleanups:
        fragment = fragments[cleanup.fragment]
        for state in fragment.arrangements.keys() - fragment.inputs_by_id.keys() if cleanup.restored else ():
            rebuilt[state] = rebuilt.get(state, {}) | dict.fromkeys(sorted(cleanup.restored), context.epoch)
    return rebuilt
