"""The order of results during a migration, and whether any are delayed.

Consumers may rely on two orders. In **max order** the time of the latest component never decreases. **PT
order** is weaker: of two results, the first is not later than the second in *every* component.

Streams are in order here: no row is earlier than one that has arrived before it.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest

from midstream.inline import InlineJoin
from midstream.protocol.settings import Settings
from midstream.state.manifest import OutputFile
from midstream.storage.output_table import FragmentRunId
from midstream.testing import Shape, assert_same_rows
from midstream.testing.random_streams import SCHEMA, SECOND, START
from midstream.values import Micros
from tests.migration.migration_cases import (
    CLIQUE,
    SEVERAL_KEYS,
    STRATEGY_CASES,
    Epochs,
    StrategyCase,
    query_of,
)

SELECT = tuple(f"{name}.{column}" for name in "abcd" for column in ("id", "t"))
CHAIN, STAR, MIXED = (SEVERAL_KEYS[name] for name in ("chain", "star", "mixed"))
CASES = [
    (CLIQUE, "((a b) c) d", "((c d) a) b"),
    (CLIQUE, "(a b) (c d)", "(a d) (b c)"),
    (CLIQUE, "a (b (c d))", "((a b) c) d"),
    (CLIQUE, "a b c d", "(a c) b d"),
    # The last nodes of these are placed by different keys.
    (CHAIN, "((a b) c) d", "a (b (c d))"),
    (CHAIN, "(a b) (c d)", "((b c) a) d"),
    (STAR, "((a b) c) d", "((a d) c) b"),
    (STAR, "a b c d", "((a b) c) d"),
    (MIXED, "((a b) c) d", "((a d) b) c"),
]
CASES_OF_SEVERAL_PARTITIONS = [CASES[i] for i in (0, 4, 6)]
PARALLEL_TRACK = StrategyCase("parallel_track")
NOT_DEFERRING = [how for how in STRATEGY_CASES if how != PARALLEL_TRACK]
START_EPOCH = 3

Times = npt.NDArray[np.int64]


def is_in_max_order(times: Times) -> bool:
    """Whether no result, a row with a time for each stream, is followed by one whose maximum is less."""
    latest = times.max(axis=1)
    return bool((latest[1:] >= latest[:-1]).all())


def is_in_pt_order(times: Times) -> bool:
    """Whether no result is followed by one that is earlier in every component."""
    return not any((times[i + 1 :] < times[i]).all(axis=1).any() for i in range(len(times)))


def streams_in_order(seed: int, epochs: int = 12, rows: int = 12) -> Epochs:
    """Streams in order: no two rows have the same time, and none comes after a later one."""
    draw = random.Random(seed)
    generated: Epochs = []
    for epoch in range(epochs):
        lines: dict[str, list[tuple[object, ...]]] = {name: [] for name in "abcd"}
        for number in range(epoch * rows, (epoch + 1) * rows):
            time = START + number * SECOND
            row = (number, time, draw.randrange(4), str(draw.randrange(2)), draw.randrange(2))
            lines[draw.choice("abcd")].append(row)
        columns = {name: zip(*rows_, strict=True) if rows_ else [[]] * 5 for name, rows_ in lines.items()}
        generated.append({name: _table(values) for name, values in columns.items()})
    return generated


def _table(columns) -> pa.Table:
    arrays = [pa.array(list(values), kind) for values, kind in zip(columns, SCHEMA.types, strict=True)]
    return pa.table(arrays, schema=SCHEMA)


@dataclass
class Outputs:
    """A sink that keeps what leaves each partition in each epoch."""

    parts: dict[tuple[int, int], list[pa.Table]] = field(default_factory=dict)

    def stage(self, task: FragmentRunId, rows: pa.Table) -> OutputFile:
        self.parts.setdefault((task.epoch, task.partition), []).append(rows)
        return OutputFile("results", f"{task}", f"{task}", rows.num_rows)

    def publish(self, outputs: Sequence[OutputFile]) -> None:
        """Nothing to do."""

    def sweep(self) -> None:
        """Nothing to do."""


@dataclass(frozen=True)
class ResultsInOrder:
    """The results of each epoch, and of each partition in it."""

    results: list[pa.Table]
    parts: dict[tuple[int, int], list[pa.Table]]


@cache
def results_of(
    on: tuple[str, ...],
    old: str,
    new: str | None = None,
    how: StrategyCase = PARALLEL_TRACK,
    partitions: int = 1,
) -> ResultsInOrder:
    """The results of each epoch; if a new plan is given, the migration to it begins and ends meanwhile."""
    query = query_of(Shape(lateness=Micros(0)), on, window=30, select=SELECT)
    outputs = Outputs()
    join = InlineJoin(query, old, settings=Settings(partitions, 8), sink=outputs)
    results = []
    for number, epoch in enumerate(streams_in_order(1)):
        if number == START_EPOCH and new is not None:
            how.migrate(join, new)
        results.append(join.run_epoch(epoch, background_epochs=2))
    if new is not None:
        assert (join.manifest.migrations, join.manifest.migration, join.manifest.plan) == (1, None, new)
    return ResultsInOrder(results, outputs.parts)


def times_of(tables: list[pa.Table]) -> Times:
    produced = pa.concat_tables(tables)
    return np.stack([produced.column(f"{name}_t").cast(pa.int64()).to_numpy() for name in "abcd"], axis=1)


def test_the_definitions_of_the_orders():
    assert is_in_max_order(np.array([[1, 5], [5, 1], [2, 6]]))
    assert not is_in_max_order(np.array([[1, 6], [5, 1]]))
    assert is_in_pt_order(np.array([[1, 6], [5, 1], [3, 4]]))
    assert not is_in_pt_order(np.array([[1, 6], [5, 3], [0, 5]]))
    assert not is_in_pt_order(np.array([[2, 2], [9, 1], [1, 1]]))


@pytest.mark.parametrize("seed", range(3))
def test_what_is_in_max_order_is_in_pt_order(seed):
    draw = np.random.default_rng(seed)
    times = draw.integers(0, 50, (200, 4))
    assert not is_in_pt_order(times)
    assert is_in_pt_order(times[np.argsort(times.max(axis=1))])


@pytest.mark.parametrize(("on", "old", "new"), CASES)
@pytest.mark.parametrize("how", NOT_DEFERRING, ids=str)
def test_hybrid_and_moving_state_keep_both_orders(how: StrategyCase, on: tuple[str, ...], old: str, new: str):
    times = times_of(results_of(on, old, new, how).results)
    assert len(times) > 500
    assert is_in_max_order(times)
    assert is_in_pt_order(times)


@pytest.mark.parametrize(("on", "old", "new"), CASES)
def test_parallel_track_keeps_only_pt_order(on: tuple[str, ...], old: str, new: str):
    times = times_of(results_of(on, old, new, PARALLEL_TRACK).results)
    assert len(times) > 500
    assert not is_in_max_order(times)
    assert is_in_pt_order(times)


@pytest.mark.parametrize(("on", "old", "new"), CASES_OF_SEVERAL_PARTITIONS)
@pytest.mark.parametrize("how", STRATEGY_CASES, ids=str)
def test_with_several_partitions_each_has_one_part_of_a_batch_and_keeps_the_order(
    how: StrategyCase, on: tuple[str, ...], old: str, new: str
):
    outputs = results_of(on, old, new, how, partitions=3).parts
    assert {partition for _, partition in outputs} == {0, 1, 2}
    assert all(len(parts) == 1 for parts in outputs.values())
    is_in_order = is_in_pt_order if how == PARALLEL_TRACK else is_in_max_order
    for partition in range(3):
        parts = [parts[0] for (_, of), parts in sorted(outputs.items()) if of == partition]
        assert is_in_order(times_of(parts))


@pytest.mark.parametrize(("on", "old", "new"), CASES_OF_SEVERAL_PARTITIONS)
@pytest.mark.parametrize("how", STRATEGY_CASES, ids=str)
def test_with_several_partitions_batches_keep_the_order(
    how: StrategyCase, on: tuple[str, ...], old: str, new: str
):
    batches = [times_of([table]) for table in results_of(on, old, new, how, partitions=3).results]
    for number, batch in enumerate(batches):
        later = np.concatenate([batch[:0], *batches[number + 1 :]])
        if how == PARALLEL_TRACK:
            assert not any((later < times).all(axis=1).any() for times in batch)
        elif len(later) and len(batch):
            assert batch.max() <= later.max(axis=1).min()


@pytest.mark.parametrize(("on", "old", "new"), CASES)
@pytest.mark.parametrize("how", NOT_DEFERRING, ids=str)
def test_hybrid_and_moving_state_delay_nothing(how: StrategyCase, on: tuple[str, ...], old: str, new: str):
    migrated, unchanged = results_of(on, old, new, how).results, results_of(on, old).results
    for number, (actual, expected) in enumerate(zip(migrated, unchanged, strict=True)):
        assert_same_rows(actual, expected, f"epoch {number}")


@pytest.mark.parametrize(("on", "old", "new"), CASES)
def test_parallel_track_delays_results_of_rows_that_are_all_new_until_it_ends(
    on: tuple[str, ...], old: str, new: str
):
    migrated, unchanged = (
        results_of(on, old, new, PARALLEL_TRACK).results,
        results_of(on, old).results,
    )
    counts = np.array([[a.num_rows, b.num_rows] for a, b in zip(migrated, unchanged, strict=True)])
    delayed = np.cumsum(counts[:, 1] - counts[:, 0])
    assert (delayed[:START_EPOCH] == 0).all()
    assert delayed.max() > 0
    assert delayed[-1] == 0
    # They are released together: the delay only grows, until it disappears at once.
    end = int(delayed.argmax()) + 1
    assert (np.diff(delayed[:end]) >= 0).all()
    assert (delayed[end:] == 0).all()
    for before in range(START_EPOCH, end):
        new_rows = np.stack([migrated[before].column(f"{name}_id").to_numpy() for name in "abcd"]).min(axis=0)
        assert (new_rows < START_EPOCH * 12).all(), "a result without an old row was not deferred"
    assert_same_rows(pa.concat_tables(migrated), pa.concat_tables(unchanged))


def test_parallel_track_delays_nothing_if_the_plans_differ_only_below_a_shared_state():
    migrated, unchanged = (results_of(CLIQUE, "((a b) c) d", new).results for new in ("((b c) a) d", None))
    for number, (actual, expected) in enumerate(zip(migrated, unchanged, strict=True)):
        assert_same_rows(actual, expected, f"epoch {number}")
    assert is_in_max_order(times_of(migrated))
