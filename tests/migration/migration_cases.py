"""Cases for tests of migrations: queries, data, expected results, and strategies."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from midstream.inline import InlineJoin
from midstream.plan.tree import Plan, all_plans
from midstream.protocol.settings import Settings
from midstream.query.build import build_query
from midstream.query.query import Query
from midstream.storage.memory_store import MemoryStore
from midstream.testing import Shape, accept, assert_same_rows, batch_join, generate, stream
from midstream.testing.random_streams import SECOND
from midstream.values import Micros

PLANS = tuple(all_plans("abcd"))
CLIQUE = ("a.k = b.k", "b.k = c.k", "c.k = d.k")
SEVERAL_KEYS = {
    "chain": ("a.k = b.k", "b.k2 = c.k2", "c.k = d.k", "a.v <> c.v"),
    "star": ("a.k = b.k", "a.k2 = c.k2", "a.v = d.v"),
    "mixed": ("a.k = b.k", "b.k = c.k", "a.k2 = d.k2"),
    "two_of_a_and_b": ("a.k = b.k", "b.k = c.k", "a.k2 = b.k2", "b.k2 = d.k2"),
}

EPOCHS_AFTERWARDS = 3
"""Epochs that are run after the end of a migration: about a window."""

Epochs = list[dict[str, pa.Table]]


def query_of(shape: Shape, on: tuple[str, ...], window: int, select: tuple[str, ...] = ()) -> Query:
    """A query over four generated streams, with a window, in seconds, between any two."""
    return build_query(
        [stream(name, shape) for name in "abcd"],
        list(on),
        default_window=Micros(window * SECOND),
        select=list(select or ("a.id", "b.id", "c.id", "d.id")),
    )


@dataclass(frozen=True)
class StrategyCase:
    """A strategy with its options."""

    strategy: str
    background: bool = True
    isolated: bool | None = None
    """Whether the new plan starts without any rows; None to let the estimated cost decide."""

    def __str__(self) -> str:
        waits = self.strategy == "hybrid" and not self.background
        return f"hybrid_{'isolated' if self.isolated else 'sharing'}" if waits else self.strategy

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
    """A query, and how its data are generated."""

    on: tuple[str, ...]
    shape: Shape
    window: int
    settings: Settings
    epochs: int

    @property
    def query(self) -> Query:
        return query_of(self.shape, self.on, self.window)


@cache
def data_of(case: MigrationCase, seed: int) -> tuple[Query, Epochs, pa.Table]:
    """The query, its epochs, and all results by the oracle."""
    query = case.query
    epochs = generate(dict.fromkeys("abcd", case.shape), case.epochs, seed)
    expected = batch_join(query, accept(query, epochs).tables(query))
    assert expected.num_rows > 100, "a case with few results tests little"
    return query, epochs, expected


@cache
def _run_until(
    case: MigrationCase, seed: int, plan: Plan, start: int
) -> tuple[dict[str, pa.Buffer], list[pa.Table]]:
    """The files and results of a run before an epoch, from which many migrations start."""
    query, epochs, _ = data_of(case, seed)
    store = MemoryStore()
    join = InlineJoin(query, plan, settings=case.settings, store=store)
    return store.files, [join.run_epoch(epoch) for epoch in epochs[:start]]


def check_migration(
    case: MigrationCase,
    seed: int,
    old: Plan,
    new: Plan,
    how: StrategyCase,
    start: int,
    background_epochs: int | None,
) -> None:
    """Check that a run that migrates at ``start`` has the results of the oracle, and ends with the new plan.

    After the end of the migration, the run continues for some epochs to see whether the new plan lacks rows.
    """
    query, epochs, expected = data_of(case, seed)
    files, before = _run_until(case, seed, old, start)
    join = InlineJoin(query, settings=case.settings, store=MemoryStore(dict(files)))
    how.migrate(join, new)
    results, remaining = [*before], EPOCHS_AFTERWARDS
    while len(results) < case.epochs and remaining:
        results.append(join.run_epoch(epochs[len(results)], background_epochs=background_epochs))
        remaining -= join.manifest.migration is None
    what = (
        f"{how} from '{old}' to '{new}' at epoch {start}, seed {seed}, background_epochs {background_epochs}"
    )
    expected = expected.filter(pa.array(_epoch_of(expected) < len(results)))
    assert_same_rows(pa.concat_tables(results), expected, what)
    assert join.manifest.migrations == 1, what
    assert join.manifest.migration is None, what
    assert join.manifest.plan == str(new), what


def _epoch_of(results: pa.Table) -> npt.NDArray[np.int64]:
    """The epoch of each result, that of its newest row; the ids of rows contain their epochs."""
    ids: npt.NDArray[np.int64] = np.max([column.to_numpy() for column in results.columns], axis=0)
    return ids // 1_000_000
