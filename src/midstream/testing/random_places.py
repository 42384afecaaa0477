"""Places at random, in place of the decision about balance: results must be right all the same.

The production decision needs much state, or a key with many rows, and moves little at a time. By chance any
group is in any partition at any time, and any key is shared by any of them, however few rows it has.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from unittest import mock

import pyarrow as pa

from midstream.engine.arrays import as_array
from midstream.engine.encode import HASH, make_encoder, project
from midstream.engine.places import Places, key_name
from midstream.memory.balance import BalanceDecision, BalanceSettings
from midstream.memory.hot_keys import spread_streams
from midstream.memory.next_step import MemoryContext
from midstream.memory.settings import MemorySettings
from midstream.memory.sizes import GroupSizes
from midstream.plan.build_layout import build_layout
from midstream.plan.tree import Plan
from midstream.query.query import Query
from midstream.state.balance import Balance
from midstream.state.routing_table import KeyName, RoutingTable, Spread

Hashes = Mapping[KeyName, tuple[int, ...]]


@dataclass(frozen=True)
class RandomPlaces:
    """A decision by chance, the same each time an epoch is run."""

    seed: int
    change_rate: float = 0.4
    """How likely it is that an epoch changes places."""
    group_rate: float = 0.3
    """How likely it is that a group is relocated then."""
    hashes: Hashes = field(default_factory=dict, repr=False)
    """The hashes of rows, by the key that places them: some of them are shared."""

    def __call__(
        self,
        context: MemoryContext,
        _sizes: GroupSizes,
        _settings: BalanceSettings,
        _memory: MemorySettings | None,
        _before: Balance,
    ) -> BalanceDecision:
        """Decide about an epoch."""
        rng = random.Random(f"{self.seed} {context.epoch}")  # noqa: S311  # it must be reproducible
        places = context.places
        if rng.random() >= self.change_rate:
            return BalanceDecision()
        keys = sorted({f.key for layout in context.layouts for f in layout.fragments if f.key})
        partitions = range(places.partitions)
        moved = {
            key_name(key): {
                group: rng.choice(partitions)
                for group in range(1, places.groups)
                if rng.random() < self.group_rate
            }
            for key in keys
        }
        spread = {
            key_name(key): {
                hot: self._spread(rng, partitions, streams)
                for hot in self.hashes.get(key_name(key), ())
                if rng.random() < self.group_rate
            }
            for key in keys
            if (streams := sorted(spread_streams(context, key)))
        }
        return BalanceDecision(moved, spread=spread if len(partitions) > 1 else {})

    def _spread(self, rng: random.Random, partitions: range, streams: list[str]) -> Spread:
        count = rng.randint(2, len(partitions)) if len(partitions) > 1 else 0
        return Spread(tuple(rng.sample(partitions, count)), rng.choice(streams))


def hashes_of(query: Query, plan: Plan, epochs: Iterable[Mapping[str, pa.Table]]) -> Hashes:
    """The hashes that rows of epochs have in a plan, by the keys that place them."""
    layout = build_layout(query, plan)
    one = Places(1, (RoutingTable(0, 1),))
    encoders = {name: make_encoder(query, layout, name, one, whole_rows=True) for name in query.names}
    hashes: dict[KeyName, set[int]] = {}
    for name, table in ((name, table) for epoch in epochs for name, table in epoch.items()):
        source = pa.table({c.name: project(table, c, name) for c in encoders[name].source})
        for rows in encoders[name](source)[0]:
            key = key_name(layout.fragment_of_input[rows.input].key)
            hashes.setdefault(key, set()).update(as_array(rows.table.column(HASH)).tolist())
    return {key: tuple(sorted(values)) for key, values in hashes.items()}


@contextmanager
def placed_by(places: RandomPlaces | None) -> Iterator[None]:
    """Let places at random take the place of the decision about balance, if they are given."""
    if places is None:
        yield
        return
    with mock.patch("midstream.protocol.epoch_balance.decide_balance", places):
        yield
