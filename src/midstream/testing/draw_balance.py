"""Balance between partitions, drawn at random: none, by the production decision, or places by chance."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace

import pyarrow as pa

from midstream.memory.balance import BalanceSettings
from midstream.plan.tree import Plan
from midstream.protocol.settings import Settings
from midstream.query.query import Query
from midstream.testing.random_places import RandomPlaces, hashes_of
from midstream.testing.random_streams import SECOND
from midstream.values import Micros

_NO_BALANCE_RATE = 0.6
_RANDOM_RATE = 0.6
"""How often chance decides about balance, if there is any."""


def draw_balance(
    rng: random.Random,
    query: Query,
    plan: Plan,
    epochs: Sequence[Mapping[str, pa.Table]],
    settings: Settings,
) -> tuple[Settings, RandomPlaces | None]:
    """The settings with what they say of balance, and what takes the place of the decision about it."""
    partitions = settings.partitions or 1
    if rng.random() < _NO_BALANCE_RATE:
        return settings, None
    shares = (3, *(rng.choice((0, 1, 2)) for _ in range(1, partitions)))
    balance = BalanceSettings(
        mode="lazy_disk" if settings.memory is None else rng.choice(("lazy_disk", "active_disk")),
        pause=Micros(rng.choice((0, 0, 20)) * SECOND),
        threshold=rng.choice((0.5, 0.8, 1.0)),
    )
    settings = replace(settings, balance=balance, shares=rng.choice(((), shares)))
    if rng.random() >= _RANDOM_RATE:
        return settings, None
    places = RandomPlaces(
        rng.randrange(1 << 30),
        rng.choice((0.2, 0.6)),
        rng.choice((0.1, 0.5)),
        hashes_of(query, plan, epochs),
    )
    return settings, places
