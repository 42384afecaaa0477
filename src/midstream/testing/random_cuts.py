"""Cuts and cleanups at random, in place of the decision about memory: results must be right all the same.

The production decision follows from sizes, which in small runs are much the same each time. By chance any
group is spilled and cleaned up at any time: as a whole, in part, or so that it stays spilled.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from unittest import mock

from midstream.memory.decision import MemoryInputs, owes
from midstream.memory.next_step import MemoryContext, MemoryDecision
from midstream.memory.sizes import GroupSizes
from midstream.plan.fragment_name import FragmentName, fragment_name
from midstream.state.memory import Cuts


@dataclass(frozen=True)
class RandomCuts:
    """A decision by chance, the same each time an epoch is run."""

    seed: int
    spill_rate: float = 0.3
    """How likely it is that an epoch spills a group."""
    cleanup_rate: float = 0.3
    """How likely it is that an epoch cleans a spilled group up."""

    def __call__(
        self, context: MemoryContext, sizes: GroupSizes | None, inputs: MemoryInputs
    ) -> MemoryDecision:
        """Decide about an epoch; what must be made is made, and without a budget nothing is spilled."""
        if sizes is None:
            return MemoryDecision()
        rng = random.Random(f"{self.seed} {context.epoch}")  # noqa: S311  # it must be reproducible
        makes_all = inputs.settings is None or inputs.drains or inputs.waits
        cleanups: dict[FragmentName, dict[int, Cuts]] = {}
        for name, group, cuts in context.memory.spilled():
            if makes_all and (context.may_restore or owes(context, sizes, name, group)):
                cleanups.setdefault(name, {})[group] = () if context.may_restore else (context.epoch,)
            elif not makes_all and rng.random() < self.cleanup_rate:
                cleanups.setdefault(name, {})[group] = self._remaining(rng, context, cuts)
        spills: dict[FragmentName, frozenset[int]] = {}
        for fragment in context.plan.fragments if context.may_spill and not makes_all else ():
            name = fragment_name(fragment)
            groups = range(context.places.groups) if fragment.key else range(0)
            drawn = [group for group in groups if rng.random() < self.spill_rate]
            if spilled := frozenset(drawn) - cleanups.get(name, {}).keys():
                spills[name] = spilled
        return MemoryDecision(spills, cleanups)

    def _remaining(self, rng: random.Random, context: MemoryContext, cuts: Cuts) -> Cuts:
        """The cuts that a group has left: none, one that is new, or the last of those that it has."""
        kind = rng.choice(("whole", "stay", "prefix"))
        if kind == "whole" and context.may_restore:
            return ()
        if kind == "prefix" and len(cuts) > 1:
            return cuts[rng.randrange(1, len(cuts)) :]
        return (context.epoch,)


def draw_cuts(rng: random.Random) -> RandomCuts:
    """How often groups are spilled and cleaned up; where that is seldom, results are owed for long."""
    rates = rng.choice((0.05, 0.3)), rng.choice((0.03, 0.1, 0.4))
    return RandomCuts(rng.randrange(1 << 30), *rates)


@contextmanager
def decided_by(cuts: RandomCuts | None) -> Iterator[None]:
    """Let cuts at random take the place of the decision about memory, if they are given."""
    if cuts is None:
        yield
        return
    with mock.patch("midstream.protocol.epoch_memory.decide_memory", cuts):
        yield
