"""The decision about balance: which groups go to another partition, and which are spilled for others' sake.

As in the papers, from committed figures only. The *sender* is the partition with the most active state, the
*receiver* the one with the least:

- **lazy_disk** (algorithm 1): if the receiver has less than ``threshold`` of what the sender has, and
  ``pause`` has passed since the last relocation, the sender gives away half of the difference, its most
  productive groups first. A partition spills only when it passes its own budget nevertheless.
- **active_disk** (algorithm 2): the same; and if the state is balanced, but the groups of one partition
  produce more than ``productivity_ratio`` times as much on average as those of another, that one spills a
  share of its state before it has to. So there is room for groups that produce more. What is spilled in this
  way is limited: by default to what the state has more than all partitions may have active.

Groups are relocated by an entry in the routing. Nothing is copied, so the eight steps of the papers' protocol
take place in one commit.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, get_args

import numpy as np

from midstream.engine.group_counts import GroupFigures
from midstream.engine.places import UNPLACED_PARTITION, Places, key_name
from midstream.memory.next_step import MemoryContext
from midstream.memory.settings import MemorySettings
from midstream.memory.sizes import GroupSizes
from midstream.memory.statistics import read_statistics
from midstream.plan.fragment_name import FragmentName, fragment_key
from midstream.plan.layout import Key
from midstream.state.balance import Balance, HotKeyChange, Relocation
from midstream.state.memory import GroupStatistics
from midstream.state.routing_table import KeyName, Spread
from midstream.values import Micros

BalanceMode = Literal["off", "lazy_disk", "active_disk"]
BALANCE_MODES: tuple[BalanceMode, ...] = get_args(BalanceMode)

PAUSE = Micros(45_000_000)


@dataclass(frozen=True, slots=True, kw_only=True)
class BalanceSettings:
    """When state moves between partitions; the defaults are those of the papers' experiments."""

    mode: BalanceMode = "off"
    threshold: float = 0.8
    """θr: groups are relocated if a partition has less than this share of the state of another."""
    pause: Micros = PAUSE
    """τm: how much event time passes between two decisions that are carried out."""
    productivity_ratio: float = 2.0
    """λ: how much more productive another partition is if groups are spilled for its sake."""
    forced_spill: int | None = None
    """How many bytes are spilled for others' sake at most; None for what does not fit into all budgets."""


@dataclass(frozen=True)
class ForcedSpill:
    """A partition that spills groups before it has to."""

    partition: int
    bytes: float


@dataclass(frozen=True)
class BalanceDecision:
    """What the next epoch does about balance."""

    moved: Mapping[KeyName, Mapping[int, int]] = field(default_factory=dict)
    """Groups that are relocated, by key, and the partition that gets them."""
    relocations: tuple[Relocation, ...] = ()
    """The same in figures."""
    forced: ForcedSpill | None = None
    spread: Mapping[KeyName, Mapping[int, Spread]] | None = None
    """The hot keys that partitions share from now on; None if that stays as it is."""
    hot_keys: tuple[HotKeyChange, ...] = ()
    """The same in figures."""

    def places(self, before: Places, epoch: int) -> Places:
        """The places of the epoch that carries it out."""
        places = before.relocated(epoch, self.moved) if self.moved else before
        return places if self.spread is None else places.spread(epoch, self.spread)


@dataclass(frozen=True, slots=True)
class _Group:
    key: Key
    group: int
    size: float
    results: float

    @property
    def productivity(self) -> float:
        return self.results / max(self.size, 1.0)


def is_due(settings: BalanceSettings, before: Balance, latest: int | None) -> bool:
    """Whether enough event time has passed since the last decision that was carried out."""
    if settings.mode == "off" or latest is None:
        return False
    return before.decided_at is None or latest - before.decided_at >= settings.pause


def decide_balance(
    context: MemoryContext,
    sizes: GroupSizes,
    settings: BalanceSettings,
    memory: MemorySettings | None,
    before: Balance,
) -> BalanceDecision:
    """What the next epoch does, if something is due."""
    active, statistics = sizes.active, context.memory.statistics
    sender, receiver = int(np.argmax(active)), int(np.argmin(active))
    if len(active) == 1 or active[sender] <= 0:
        return BalanceDecision()
    ratio = active[receiver] / active[sender]
    if ratio < settings.threshold:
        amount = (active[sender] - active[receiver]) / 2
        chosen = _choose(_groups_of(sender, sizes, statistics), amount)
        return _relocation(chosen, sender, receiver, ratio)
    if settings.mode == "active_disk" and memory is not None:
        return BalanceDecision(forced=_forced_spill(settings, memory, sizes, statistics, before))
    return BalanceDecision()


def _groups_of(
    partition: int, sizes: GroupSizes, statistics: Mapping[FragmentName, GroupStatistics]
) -> list[_Group]:
    """The groups that a partition may give away, the most productive first."""
    size, results = _by_key(sizes, statistics)
    groups = [
        _Group(key, group, float(size[key][group]), float(results[key][group]))
        for key in size
        for group in np.flatnonzero(np.array(sizes.places.routing(key).partitions) == partition).tolist()
        # Rows that no key places are with the first group, and stay.
        if size[key][group] > 0 and (group > 0 or partition != UNPLACED_PARTITION)
    ]
    return sorted(groups, key=lambda g: (-g.productivity, g.key, g.group))


def _choose(groups: list[_Group], amount: float) -> list[_Group]:
    """The first groups that have no more than an amount together; those that are too large stay."""
    chosen, size = [], 0.0
    for group in groups:
        if size + group.size <= amount:
            chosen.append(group)
            size += group.size
    return chosen


def _relocation(chosen: list[_Group], sender: int, receiver: int, ratio: float) -> BalanceDecision:
    moved: dict[KeyName, dict[int, int]] = {}
    size: dict[KeyName, float] = {}
    for group in chosen:
        name = key_name(group.key)
        moved.setdefault(name, {})[group.group] = receiver
        size[name] = size.get(name, 0.0) + group.size
    relocations = tuple(
        Relocation(name, len(groups), round(size[name]), sender, receiver, ratio)
        for name, groups in moved.items()
    )
    return BalanceDecision(moved, relocations)


def _forced_spill(
    settings: BalanceSettings,
    memory: MemorySettings,
    sizes: GroupSizes,
    statistics: Mapping[FragmentName, GroupStatistics],
    before: Balance,
) -> ForcedSpill | None:
    """What the least productive partition spills, if another one is much more productive."""
    places, (_, results) = sizes.places, _by_key(sizes, statistics)
    produced, groups = np.zeros(places.partitions), np.zeros(places.partitions)
    for key in results:
        here = places.routing(key).partitions
        produced += np.bincount(here, results[key], minlength=places.partitions)
        groups += np.bincount(here, minlength=places.partitions)
    rates = produced / np.maximum(groups, 1.0)
    least = int(np.argmin(np.where(groups > 0, rates, np.inf)))
    if rates.max() <= settings.productivity_ratio * rates[least]:
        return None
    limit = settings.forced_spill
    if limit is None:
        all_of_it = sum(float(of.total.sum()) for of in sizes.fragments.values())
        limit = round(all_of_it - memory.budget * places.partitions)
    amount = min(memory.spill_share * sizes.active[least], float(limit - before.forced_bytes))
    return ForcedSpill(least, amount) if amount > 0 else None


def _by_key(
    sizes: GroupSizes, statistics: Mapping[FragmentName, GroupStatistics]
) -> tuple[dict[Key, GroupFigures], dict[Key, GroupFigures]]:
    """The active bytes of the groups of each key, and the results that were made from them lately."""
    size: dict[Key, GroupFigures] = {}
    results: dict[Key, GroupFigures] = {}
    for name, of_fragment in sizes.fragments.items():
        key, groups = fragment_key(name), len(of_fragment.active)
        size[key] = size.get(key, 0.0) + of_fragment.active
        output = read_statistics(statistics.get(name), groups)
        results[key] = results.get(key, 0.0) + output.results
    return size, results
