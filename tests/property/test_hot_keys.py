"""Any query, plan and migration, with keys that are hot from a few rows on: the results are the same."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from midstream.engine import hot_keys
from midstream.inline import InlineJoin
from midstream.storage.fsck import check as fsck
from midstream.storage.memory_store import MemoryStore
from midstream.testing import accept, assert_same_rows, batch_join
from midstream.testing.hypothesis_strategies import cases
from tests.helpers import rows, small_query
from tests.migration.migration_schedules import check_migrations, migration_schedules


@given(cases(), st.integers(1, 4))
def test_results_do_not_depend_on_which_keys_are_hot(case, hot_rows):
    store = MemoryStore()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(hot_keys, "HOT_KEY_ROWS", hot_rows)
        join = InlineJoin(case.query, case.plan, settings=case.settings, store=store)
        results = pa.concat_tables([join.run_epoch(epoch) for epoch in case.epochs])
        assert fsck(store).problems == ()
    tables = accept(case.query, case.epochs, case.settings.idle_timeout).tables(case.query)
    assert_same_rows(results, batch_join(case.query, tables))


@given(st.data(), st.integers(1, 2))
def test_results_do_not_depend_on_which_keys_are_hot_during_migrations(data, hot_rows):
    case = data.draw(cases(max_streams=5, max_epochs=7, max_results=1500))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(hot_keys, "HOT_KEY_ROWS", hot_rows)
        run = check_migrations(case, data.draw(migration_schedules(case)))
        assert fsck(run.store).problems == ()


def _few_keys(names: str, seed: int, epochs: int) -> list[dict[str, pa.Table]]:
    """Epochs of rows with few keys and about the same times."""
    random = np.random.default_rng(seed)

    def table() -> pa.Table:
        times, keys, other_keys = (random.integers(0, limit, 10).tolist() for limit in (60, 2, 2))
        return rows(*zip(times, keys, other_keys, strict=True))

    return [{name: table() for name in names} for _ in range(epochs)]


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(
    ("on", "plan", "new_plan"),
    [
        (["a.k = b.k", "b.j = c.j", "a.j = d.k", "d.j = e.k"], "(a b c) d e", "a b c d e"),
        (["a.k = b.k", "b.j = c.j", "a.j = d.k", "d.j = e.k"], "a b c d e", "(a b c) d e"),
        (["a.k = b.k", "b.k = c.k"], "(a b) c", "a (b c)"),
    ],
)
def test_combined_rows_are_in_time_order_for_every_key_they_are_searched_by(
    on, plan, new_plan, seed, monkeypatch
):
    """Plans in which combined rows are arranged by another key, with many rows for each of its values."""
    monkeypatch.setattr(hot_keys, "HOT_KEY_ROWS", 2)
    names = "abcde"[: len(on) + 1]
    select = [f"{name}.t as t{name}" for name in names]
    query = small_query(on, names, lateness=1000, default_window=6, select=select)
    epochs = _few_keys(names, seed, 8)
    join = InlineJoin(query, plan, store=MemoryStore())
    tables = []
    for number, epoch in enumerate(epochs):
        if number == 4:
            join.migrate(new_plan, "moving_state")
        tables.append(join.run_epoch(epoch))
        assert fsck(join.store).problems == ()
    assert_same_rows(pa.concat_tables(tables), batch_join(query, accept(query, epochs).tables(query)))
