"""Any query, plan and epochs, cuts and cleanups at any time: in the end the results are those of DuckDB."""

from __future__ import annotations

from dataclasses import replace
from unittest import mock

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from midstream.engine import cleanup
from midstream.inline import InlineJoin
from midstream.memory.settings import MemorySettings
from midstream.storage.fsck import check as fsck
from midstream.storage.memory_store import MemoryStore
from midstream.testing import accept, assert_same_rows, batch_join
from midstream.testing.hypothesis_strategies import Case, cases
from midstream.testing.random_cuts import RandomCuts, decided_by


def run_with_cuts(case: Case, cuts: RandomCuts) -> InlineJoin:
    store, settings = MemoryStore(), replace(case.settings, memory=MemorySettings(1))
    with decided_by(cuts):
        join = InlineJoin(case.query, case.plan, settings=settings, store=store)
        tables = [join.run_epoch(epoch) for epoch in case.epochs]
        assert not fsck(store).problems
        tables += [join.run_epoch({}, drains=True) for _ in range(2)]
    accepted = accept(case.query, case.epochs, case.settings.idle_timeout).tables(case.query)
    assert_same_rows(pa.concat_tables(tables), batch_join(case.query, accepted))
    assert not join.manifest.memory.cuts
    return join


@given(st.data())
def test_what_is_owed_is_made(data):
    case = data.draw(cases(max_streams=5, max_epochs=7, max_results=1500))
    rows_at_once = data.draw(st.sampled_from([1 << 18, 20, 1]))
    with mock.patch.object(cleanup, "_ROWS_AT_ONCE", rows_at_once):
        run_with_cuts(case, RandomCuts(data.draw(st.integers(0, 1 << 30))))
