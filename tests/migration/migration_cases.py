"""Runs with a migration in them: the queries, their data, what must come out, and how to get there."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from midstream.inline import InlineJoin
from midstream.plan.tree import Plan, all_plans
from midstream.protocol.settings import Settings
from midstream.query.build import build_query
from midstream.query.query import Query
from midstream.storage.memory import MemoryStore
from midstream.testing import Shape, accept, assert_same_rows, batch_join, generate, stream
from midstream.testing.random_streams import SECOND
from midstream.values import Micros

PLANS = tuple(all_plans("abcd"))
CLIQUE = ("a.k = b.k", "b.k = c.k", "c.k = d.k")
SEVERAL_KEYS = ("a.k = b.k", "b.k2 = c.k2", "c.k = d.k", "a.v <> c.v")

MORE = 3
"""Epochs that are run after the end of a migration: about a window."""

Epochs = list[dict[str, pa.Table]]


def query_of(shape: Shape, on: tuple[str, ...], window: int, select: tuple[str, ...] = ()) -> Query:
    """A query over four generated streams, with a window of so many seconds between any two."""
    return build_query(
        [stream(name, shape) for name in "abcd"],
        list(on),
        everywhere=Micros(window * SECOND),
        select=list(select or ("a.id", "b.id", "c.id", "d.id")),
    )


@dataclass(frozen=True)
class StrategyCase:
    """A strategy and what goes with it."""

    strategy: str
    background: bool = True
    isolated: bool | None = None
    """Whether plans that wait for old rows to expire are kept apart; None if the price decides."""

    def __str__(self) -> str:
        waits = self.strategy == "hybrid" and not self.background
        return f"hybrid_{'apart' if self.isolated else 'sharing'}" if waits else self.strategy

    def migrate(self, join: InlineJoin, plan: str | Plan) -> None:
        join.migrate(
            plan, self.strategy, background="auto" if self.background else "off", isolated=self.isolated
        )


STRATEGY_CASES = (
    StrategyCase("moving_state"),
    StrategyCase("parallel_track"),
    StrategyCase("hybrid", background=False, isolated=False),
    StrategyCase("hybrid", background=False, isolated=True),
    StrategyCase("hybrid"),
)


@dataclass(frozen=True)
class MigrationCase:
    """A query and how its data are made; both decide what it must give."""

    on: tuple[str, ...]
    shape: Shape
    window: int
    settings: Settings
    epochs: int

    @property
    def query(self) -> Query:
        return query_of(self.shape, self.on, self.window)


@lru_cache(maxsize=32)
def data_of(ground: MigrationCase, seed: int) -> tuple[Query, Epochs, pa.Table]:
    """The query, its epochs, and all results by the oracle."""
    query = ground.query
    epochs = generate(dict.fromkeys("abcd", ground.shape), ground.epochs, seed)
    wanted = batch_join(query, accept(query, epochs).tables(query))
    assert wanted.num_rows > 100, "data that give next to nothing test nothing"
    return query, epochs, wanted


@lru_cache(maxsize=64)
def _until(
    ground: MigrationCase, seed: int, plan: Plan, start: int
) -> tuple[dict[str, pa.Buffer], list[pa.Table]]:
    """What a run of a plan has stored and given before an epoch: many migrations begin there."""
    query, epochs, _ = data_of(ground, seed)
    store = MemoryStore()
    join = InlineJoin(query, plan, settings=ground.settings, store=store)
    return store.files, [join.run_epoch(epoch) for epoch in epochs[:start]]


def check_migration(
    ground: MigrationCase,
    seed: int,
    old: Plan,
    new: Plan,
    how: StrategyCase,
    start: int,
    background_epochs: int | None,
) -> None:
    """Fail unless a run that migrates at ``start`` gives what the oracle gives, and ends on the new plan.

    Once the migration has ended, the run goes on for some epochs to see whether the new plan lacks anything.
    """
    query, epochs, wanted = data_of(ground, seed)
    files, before = _until(ground, seed, old, start)
    join = InlineJoin(query, settings=ground.settings, store=MemoryStore(dict(files)))
    how.migrate(join, new)
    got, more = [*before], MORE
    while len(got) < ground.epochs and more:
        got.append(join.run_epoch(epochs[len(got)], background_epochs=background_epochs))
        more -= join.manifest.migration is None
    what = (
        f"{how} from '{old}' to '{new}' at epoch {start}, seed {seed}, background_epochs {background_epochs}"
    )
    assert_same_rows(pa.concat_tables(got), wanted.filter(pa.array(_epoch_of(wanted) < len(got))), what)
    assert join.manifest.migrations == 1, what
    assert join.manifest.migration is None, what
    assert join.manifest.plan == str(new), what


def _epoch_of(results: pa.Table) -> npt.NDArray[np.int64]:
    """The epoch that results belong to, that of their newest row; ids say from which epoch a row is."""
    ids: npt.NDArray[np.int64] = np.max([column.to_numpy() for column in results.columns], axis=0)
    return ids // 1_000_000
