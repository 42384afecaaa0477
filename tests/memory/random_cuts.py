"""Cuts and cleanups at random, in place of the decision about memory."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from unittest import mock

from midstream.memory.next_step import MemoryContext, MemoryDecision
from midstream.plan.fragment_name import fragment_name
from midstream.state.memory import Cuts


@dataclass
class RandomCuts:
    """A decision by chance, the same each time an epoch is run; from ``drain_from`` on all is cleaned up."""

    seed: int
    spill_rate: float = 0.3
    cleanup_rate: float = 0.3
    drain_from: int = 1 << 40

    def __call__(self, context: MemoryContext, *_args: object) -> MemoryDecision:
        chance = random.Random(f"{self.seed} {context.epoch}")  # it must be reproducible
        drains = context.epoch >= self.drain_from
        cleanups: dict[str, dict[int, Cuts]] = {}
        for name, group, cuts in context.memory.spilled():
            if drains or chance.random() < self.cleanup_rate:
                remaining = self._remaining(chance, context, cuts, drains=drains)
                cleanups.setdefault(name, {})[group] = remaining
        spills: dict[str, frozenset[int]] = {}
        for fragment in context.plan.fragments if context.may_spill and not drains else ():
            name = fragment_name(fragment)
            groups = range(context.places.groups) if fragment.key else range(0)
            drawn = [group for group in groups if chance.random() < self.spill_rate]
            if spilled := frozenset(drawn) - cleanups.get(name, {}).keys():
                spills[name] = spilled
        return MemoryDecision(spills, cleanups)

    def _remaining(self, chance: random.Random, context: MemoryContext, cuts: Cuts, *, drains: bool) -> Cuts:
        """The cuts that a group has left: none, one that is new, or the last of those that it has."""
        kind = "whole" if drains else chance.choice(("whole", "stay", "prefix"))
        if kind == "whole" and context.may_restore:
            return ()
        if kind == "prefix" and len(cuts) > 1:
            return cuts[chance.randrange(1, len(cuts)) :]
        return (context.epoch,)


@contextmanager
def decided_by(decision: object) -> Iterator[None]:
    """Let something else decide about memory."""
    with mock.patch("midstream.protocol.epoch_memory.decide_memory", decision):
        yield
