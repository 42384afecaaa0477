"""The decision about memory: what the next epoch spills, what it cleans up, and why.

It is made for each engine partition by itself, from committed figures only:

- If more bytes are active than the budget, groups are spilled: a share of the active state at once, in the
  order of the strategy.
- What is owed is made if it is due: it has been owed for longer than the delay, the query is drained, a
  change of plan waits for it, or there is no budget any more.
- If there is room again, groups come back, the most productive first.

What an epoch cleans up is bounded: by what the budget leaves, but no less than a spill frees. An epoch
without rows, whose active state nobody probes, takes as much as the whole budget. Some group is cleaned up in
every epoch in which one is due. A group comes back if there is room for all of it. If not, all its
generations become one, which is not probed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from midstream.engine.group_counts import GroupFigures
from midstream.memory.balance import ForcedSpill
from midstream.memory.next_step import MemoryContext, MemoryDecision
from midstream.memory.settings import MemorySettings
from midstream.memory.sizes import GroupSizes
from midstream.memory.statistics import read_statistics
from midstream.memory.strategies import SpillCandidate, rank_of
from midstream.plan.fragment_name import FragmentName, fragment_key
from midstream.state.memory import Cuts, Mark, MemoryAction, MemoryChange

_RESERVE = 2.0
"""Intermediate states may have grown since it was known how large they are: more rows have more pairs."""
_OVER_BUDGET = "more state was active than stateMemory"
FORCED = "groups of another partition produce more"
_ROOM = "there is room again"


@dataclass(frozen=True, kw_only=True)
class MemoryInputs:
    """What the decision about memory follows from, besides sizes."""

    settings: MemorySettings | None
    """None without a budget."""
    latest: int | None
    """The newest event time of all streams."""
    window: float
    """The longest window; infinite if some streams have none."""
    drains: bool = False
    """Whether all that is owed is to be made."""
    has_rows: bool = True
    """Whether the epoch has a batch, even if there are no rows in it."""
    waits: bool = False
    """Whether a change of plan waits for what is owed."""
    forced: ForcedSpill | None = None
    """What a partition spills for the sake of others."""
    keeps_room: bool = False
    """Whether room is for groups of other partitions: none comes back before what it owes is due."""


def decide_memory(context: MemoryContext, sizes: GroupSizes | None, inputs: MemoryInputs) -> MemoryDecision:
    """What the next epoch does; ``sizes`` are None if there is no budget, and nothing is spilled."""
    if sizes is None:
        return MemoryDecision()
    decision = _Decision(context, sizes, inputs)
    for partition in range(context.places.partitions):
        decision.decide(partition)
    return decision.result()


@dataclass
class _Decision:
    context: MemoryContext
    sizes: GroupSizes
    inputs: MemoryInputs
    spills: dict[FragmentName, set[int]] = field(default_factory=dict)
    cleanups: dict[FragmentName, dict[int, Cuts]] = field(default_factory=dict)
    changes: dict[tuple[MemoryAction, FragmentName, str], tuple[int, float]] = field(default_factory=dict)

    def decide(self, partition: int) -> None:
        settings = self.inputs.settings
        active = self.sizes.active[partition]
        budget = settings.budget if settings is not None else float("inf")
        if settings is not None and self.context.may_spill and not self.inputs.waits:
            forced = self.inputs.forced
            if active > budget:
                wanted = max(settings.spill_share * active, active - settings.budget)
                active -= self._spill(partition, settings, wanted, _OVER_BUDGET)
            elif forced is not None and forced.partition == partition:
                active -= self._spill(partition, settings, forced.bytes, FORCED)
        room = max(budget - active, 0.0)
        due = [(group, reason) for group in self._spilled[partition] if (reason := self._due_reason(group))]
        # Fragments below first: what they owe arrives above in the same epoch.
        portion, least = 0.0, self._least_portion(budget)
        for group, reason in sorted(due, key=lambda entry: (entry[0].stage, self._first_cut(entry[0]))):
            if portion and portion + group.size > max(room, least):
                break
            comes_back = self.context.may_restore and group.whole_size <= room
            if not comes_back and not self._owes(group):
                continue
            self._clean_up(group, reason, comes_back=comes_back)
            portion += group.size
            active += group.whole_size if comes_back else 0.0
            room = max(budget - active, 0.0)
        if settings is not None and self.context.may_restore and not due and not self.inputs.keeps_room:
            self._bring_back(partition, (1 - settings.spill_share) * budget - active)

    def result(self) -> MemoryDecision:
        changes = tuple(
            MemoryChange(action, fragment, groups, round(size), reason)
            for (action, fragment, reason), (groups, size) in self.changes.items()
        )
        return MemoryDecision(
            {f: frozenset(groups) for f, groups in self.spills.items()}, self.cleanups, changes
        )

    def _least_portion(self, budget: float) -> float:
        """How many bytes an epoch may clean up in a partition, however little room there is."""
        settings = self.inputs.settings
        return budget * settings.spill_share if settings is not None and self.inputs.has_rows else budget

    def _spill(self, partition: int, settings: MemorySettings, wanted: float, reason: str) -> float:
        """Spill groups of so many bytes; returns how many are not active then."""
        spilled = 0.0
        for group in sorted(self._active[partition], key=rank_of(settings.strategy)):
            if spilled >= wanted:
                break
            self.spills.setdefault(group.fragment, set()).add(group.group)
            self._note("spilled", group, reason)
            spilled += group.size
        return spilled

    def _bring_back(self, partition: int, room: float) -> None:
        """Bring groups back, the most productive first."""
        spilled = [group for group in self._spilled[partition] if not self._is_spilled_now(group)]
        for group in sorted(spilled, key=lambda g: (-g.productivity, g.fragment, g.group)):
            if group.whole_size > room:
                break
            self._clean_up(group, _ROOM, comes_back=True)
            room -= group.whole_size

    def _clean_up(self, group: SpillCandidate, reason: str, *, comes_back: bool) -> None:
        remaining = () if comes_back else (self.context.epoch,)
        self.cleanups.setdefault(group.fragment, {})[group.group] = remaining
        self._note("brought back" if comes_back else "cleaned up", group, reason)

    def _due_reason(self, group: SpillCandidate) -> str:
        """Why what a group owes is due; empty if it is not."""
        if self._is_spilled_now(group):
            return ""
        if self.inputs.settings is None:
            return "there is no budget of memory any more"
        if self.inputs.waits:
            return "a change of plan waits for it"
        if not self._owes(group):
            return ""
        if self.inputs.drains:
            return "the query is drained"
        mark, latest = self.context.memory.marks[self._first_cut(group)], self.inputs.latest
        delay = self.inputs.settings.cleanup_delay
        is_late = _has_passed(mark, latest, self.inputs.window if delay is None else delay)
        return "it was owed for longer than cleanupDelay" if is_late else ""

    def _owes(self, group: SpillCandidate) -> bool:
        return owes(self.context, self.sizes, group.fragment, group.group)

    def _first_cut(self, group: SpillCandidate) -> int:
        return self.context.memory.cuts[group.fragment][group.group][0]

    def _is_spilled_now(self, group: SpillCandidate) -> bool:
        return group.group in self.spills.get(group.fragment, ())

    @cached_property
    def _active(self) -> dict[int, list[SpillCandidate]]:
        """The groups of each partition that have active rows."""
        return self._by_partition(
            (f, of.active, range(len(of.active))) for f, of in self.sizes.fragments.items()
        )

    @cached_property
    def _spilled(self) -> dict[int, list[SpillCandidate]]:
        """The groups of each partition that are spilled, with all their rows."""
        cuts = self.context.memory.cuts
        return self._by_partition((f, self.sizes.fragments[f].total + 1, cuts[f]) for f in cuts)

    def _by_partition(
        self, fragments: Iterable[tuple[FragmentName, GroupFigures, Iterable[int]]]
    ) -> dict[int, list[SpillCandidate]]:
        """Groups of fragments, with their sizes, divided once: there may be as many partitions as groups."""
        divided = defaultdict[int, list[SpillCandidate]](list)
        for fragment, figures, groups in fragments:
            sizes, here = figures.tolist(), self.context.places.routing(fragment_key(fragment)).partitions
            statistics = self.context.memory.statistics.get(fragment)
            output = read_statistics(statistics, len(here))
            for group in groups:
                if sizes[group] > 0:
                    candidate = SpillCandidate(
                        fragment=fragment,
                        group=group,
                        stage=self.sizes.fragments[fragment].stage,
                        size=sizes[group],
                        output=float(output.rows[group]),
                        results=float(output.results[group]),
                        stored_bytes=float(output.stored_bytes[group]),
                        epoch=self.context.epoch,
                        restored_bytes=_RESERVE * sizes[group] * float(output.intermediate[group]),
                    )
                    divided[here[group]].append(candidate)
        return divided

    def _note(self, action: MemoryAction, group: SpillCandidate, reason: str) -> None:
        key = (action, group.fragment, reason)
        groups, size = self.changes.get(key, (0, 0.0))
        self.changes[key] = (groups + 1, size + group.size)


def owes(context: MemoryContext, sizes: GroupSizes, fragment: FragmentName, group: int) -> bool:
    """Whether a spilled group may owe something: no row has arrived since its only cut, if it does not."""
    one_cut = len(context.memory.cuts[fragment][group]) == 1
    return not one_cut or sizes.fragments[fragment].active_rows[group] > 0


def owing_groups(context: MemoryContext, sizes: GroupSizes) -> Mapping[FragmentName, list[int]]:
    """The spilled groups that may owe something."""
    return {
        fragment: [group for group in groups if owes(context, sizes, fragment, group)]
        for fragment, groups in context.memory.cuts.items()
    }


def _has_passed(mark: Mark, latest: int | None, delay: float) -> bool:
    return latest is not None and mark.latest is not None and latest - mark.latest >= delay
