"""Budgets of memory, drawn at random."""

from __future__ import annotations

import random

from midstream.memory.settings import MemorySettings
from midstream.memory.strategies import SPILL_STRATEGIES
from midstream.query.query import Query
from midstream.testing.random_streams import SECOND
from midstream.values import Micros

_NO_BUDGET_RATE = 0.75
_NO_BUDGET_RATE_WITH_SEVERAL_KEYS = 0.4
"""Only where fragments send rows to others are there holds."""


def draw_memory(rng: random.Random, query: Query) -> MemorySettings | None:
    """A budget that is passed soon, or none."""
    no_budget = _NO_BUDGET_RATE_WITH_SEVERAL_KEYS if len(query.classes) > 1 else _NO_BUDGET_RATE
    return None if rng.random() < no_budget else draw_budget(rng)


def draw_budget(rng: random.Random) -> MemorySettings:
    """A budget that is passed soon."""
    return MemorySettings(
        budget=rng.choice((1_000, 4_000, 16_000)),
        strategy=rng.choice(SPILL_STRATEGIES),
        spill_share=rng.choice((0.1, 0.3, 0.9)),
        cleanup_delay=rng.choice((None, Micros(5 * SECOND), Micros(30 * SECOND))),
    )
