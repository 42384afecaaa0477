"""The order in which results come out while a query migrates, and whether any of them is delayed.

Two orders are of use to whoever consumes results. In **max order** the latest component of results never goes
back. **PT order** is weaker: of two results the first is not later than the second in *every* component.
"""

from __future__ import annotations

import random

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest

from midstream.inline import InlineJoin
from midstream.protocol.settings import Settings
from midstream.testing import Shape, assert_same_rows
from midstream.testing.random_streams import SCHEMA, SECOND, START
from midstream.values import Micros
from tests.migration.migration_cases import CLIQUE, STRATEGY_CASES, Epochs, StrategyCase, query_of

SELECT = tuple(f"{name}.{column}" for name in "abcd" for column in ("id", "t"))
QUERY = query_of(Shape(lateness=Micros(0)), CLIQUE, window=30, select=SELECT)
PAIRS = [
    ("((a b) c) d", "((c d) a) b"),
    ("(a b) (c d)", "(a d) (b c)"),
    ("a (b (c d))", "((a b) c) d"),
    ("a b c d", "(a c) b d"),
]
PARALLEL_TRACK = StrategyCase("parallel_track")
AT_ONCE = [how for how in STRATEGY_CASES if how != PARALLEL_TRACK]
START_EPOCH = 3

Times = npt.NDArray[np.int64]


def is_in_max_order(times: Times) -> bool:
    """Whether no result (a row of times, one for each stream) is followed by one whose maximum is less."""
    latest = times.max(axis=1)
    return bool((latest[1:] >= latest[:-1]).all())


def is_in_pt_order(times: Times) -> bool:
    """Whether no result is followed by one that is earlier in every component."""
    return not any((times[i + 1 :] < times[i]).all(axis=1).any() for i in range(len(times)))


def in_order(seed: int, epochs: int = 12, rows: int = 12) -> Epochs:
    """Streams without disorder: no two rows have the same time, and none comes after a later one."""
    draw = random.Random(seed)
    found: Epochs = []
    for epoch in range(epochs):
        lines: dict[str, list[tuple[object, ...]]] = {name: [] for name in "abcd"}
        for number in range(epoch * rows, (epoch + 1) * rows):
            time = START + number * SECOND
            lines[draw.choice("abcd")].append((number, time, draw.randrange(4), "", 0))
        columns = {name: zip(*some, strict=True) if some else [[]] * 5 for name, some in lines.items()}
        found.append({name: _table(values) for name, values in columns.items()})
    return found


def _table(columns) -> pa.Table:
    arrays = [pa.array(list(values), kind) for values, kind in zip(columns, SCHEMA.types, strict=True)]
    return pa.table(arrays, schema=SCHEMA)


def run(
    epochs: Epochs, old: str, new: str | None = None, how: StrategyCase = PARALLEL_TRACK
) -> list[pa.Table]:
    """What each epoch gave; if another plan is wanted, the migration to it begins and ends meanwhile."""
    join = InlineJoin(QUERY, old, settings=Settings(1, 1))
    found = []
    for number, epoch in enumerate(epochs):
        if number == START_EPOCH and new is not None:
            how.migrate(join, new)
        found.append(join.run_epoch(epoch, background_epochs=2))
    if new is not None:
        assert (join.manifest.migrations, join.manifest.migration, join.manifest.plan) == (1, None, new)
    return found


def times_of(tables: list[pa.Table]) -> Times:
    produced = pa.concat_tables(tables)
    assert produced.num_rows > 500
    return np.stack([produced.column(f"{name}_t").cast(pa.int64()).to_numpy() for name in "abcd"], axis=1)


def test_the_orders_are_what_they_are_said_to_be():
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


@pytest.mark.parametrize(("old", "new"), PAIRS)
@pytest.mark.parametrize("how", AT_ONCE, ids=str)
def test_hybrid_and_moving_state_keep_both_orders(how: StrategyCase, old: str, new: str):
    times = times_of(run(in_order(1), old, new, how))
    assert is_in_max_order(times)
    assert is_in_pt_order(times)


@pytest.mark.parametrize(("old", "new"), PAIRS)
def test_parallel_track_keeps_only_pt_order(old: str, new: str):
    times = times_of(run(in_order(1), old, new, PARALLEL_TRACK))
    assert not is_in_max_order(times)
    assert is_in_pt_order(times)


@pytest.mark.parametrize(("old", "new"), PAIRS)
@pytest.mark.parametrize("how", AT_ONCE, ids=str)
def test_hybrid_and_moving_state_delay_nothing(how: StrategyCase, old: str, new: str):
    epochs = in_order(2)
    for number, (mine, stayed) in enumerate(zip(run(epochs, old, new, how), run(epochs, old), strict=True)):
        assert_same_rows(mine, stayed, f"epoch {number}")


@pytest.mark.parametrize(("old", "new"), PAIRS)
def test_parallel_track_delays_results_of_rows_that_are_all_new_until_it_ends(old: str, new: str):
    epochs = in_order(2)
    mine, stayed = run(epochs, old, new, PARALLEL_TRACK), run(epochs, old)
    counts = np.array([[a.num_rows, b.num_rows] for a, b in zip(mine, stayed, strict=True)])
    behind = np.cumsum(counts[:, 1] - counts[:, 0])
    assert (behind[:START_EPOCH] == 0).all()
    assert behind.max() > 0
    assert behind[-1] == 0
    # They come out together: what is behind only grows until it is made up for at once.
    end = int(behind.argmax()) + 1
    assert (np.diff(behind[:end]) >= 0).all()
    assert (behind[end:] == 0).all()
    for before in range(START_EPOCH, end):
        new_rows = np.stack([mine[before].column(f"{name}_id").to_numpy() for name in "abcd"]).min(axis=0)
        assert (new_rows < START_EPOCH * 12).all(), "a result without an old row came out early"
    assert_same_rows(pa.concat_tables(mine), pa.concat_tables(stayed))


def test_parallel_track_delays_nothing_if_the_plans_differ_only_below_a_state_that_both_have():
    epochs = in_order(2)
    mine, stayed = (run(epochs, "((a b) c) d", new) for new in ("((b c) a) d", None))
    for number, (changed, same) in enumerate(zip(mine, stayed, strict=True)):
        assert_same_rows(changed, same, f"epoch {number}")
    assert is_in_max_order(times_of(mine))
