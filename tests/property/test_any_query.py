"""Any query, any plan, any epochs: what the engine gives is what DuckDB gives."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from midstream.inline import InlineJoin
from midstream.protocol.settings import Settings
from midstream.storage.memory import MemoryStore
from midstream.testing import accept, assert_same_rows, batch_join, naive_join
from midstream.testing.domains import DOMAINS
from midstream.testing.oracle import matching_rows, outputs
from midstream.testing.reference import Accepted
from midstream.testing.strategies import Case, cases, plans


def run(case: Case, plan=None, settings=None) -> list[pa.Table]:
    join = InlineJoin(case.query, plan or case.plan, settings=settings or case.settings)
    return [join.run_epoch(epoch) for epoch in case.epochs]


def accepted_rows(case: Case) -> Accepted:
    return accept(case.query, case.epochs, case.settings.idle_timeout)


@given(cases())
def test_every_epoch_gives_the_results_that_its_rows_complete(case):
    accepted = accepted_rows(case)
    tables = accepted.tables(case.query)
    found = matching_rows(case.query, tables)
    # A result belongs to the epoch of its newest row, so one join tells what every prefix must have.
    arrival = {
        name: np.repeat(
            np.arange(len(case.epochs)),
            [e[name].num_rows if name in e else 0 for e in accepted.epochs],
        )
        for name in case.query.names
    }
    newest = np.max([arrival[n][found.column(n).to_numpy()] for n in case.query.names], axis=0, initial=0)
    got = run(case)
    counts = [int((newest == epoch).sum()) for epoch in range(len(case.epochs))]
    assert [table.num_rows for table in got] == counts
    for epoch, table in enumerate(got):
        wanted = outputs(case.query, tables, found.filter(pa.array(newest == epoch)))
        assert_same_rows(table, wanted, f"epoch {epoch}")


@pytest.mark.parametrize("domain", DOMAINS, ids=lambda domain: domain.name)
@given(data=st.data())
def test_keys_of_every_kind_meet_as_in_the_oracle(domain, data):
    case = data.draw(cases(max_streams=3, residuals=False, domains=(domain,), max_results=1000))
    wanted = batch_join(case.query, accepted_rows(case).tables(case.query))
    assert_same_rows(pa.concat_tables(run(case)), wanted)


@given(cases())
def test_every_row_is_counted_once(case):
    join = InlineJoin(case.query, case.plan, settings=case.settings)
    for number, epoch in enumerate(case.epochs):
        join.run_epoch(epoch)
        progress = accept(case.query, case.epochs[: number + 1], case.settings.idle_timeout).progress
        for name, stream in progress.items():
            mark = join.manifest.streams[name]
            given_rows = sum(e[name].num_rows for e in case.epochs[: number + 1] if name in e)
            assert mark.rows == given_rows
            assert (mark.late, mark.null_time, mark.null_key) == (
                stream.late,
                stream.null_time,
                stream.null_key,
            )
            assert stream.accepted + stream.late + stream.null_time + stream.null_key == given_rows
            assert (mark.latest, mark.watermark, mark.idle) == (
                stream.latest,
                stream.watermark,
                stream.idle,
            )
    late = {name: sum(t.num_rows for t in tables) for name, tables in join.late.items()}
    assert late == {n: m.late + m.null_time for n, m in join.manifest.streams.items()}


@given(st.data())
def test_two_plans_give_the_same(data):
    case = data.draw(cases())
    other = data.draw(plans(case.query.names))
    for mine, theirs in zip(run(case), run(case, plan=other), strict=True):
        assert_same_rows(mine, theirs)


@given(cases())
def test_one_partition_and_three_give_the_same(case):
    idle = case.settings.idle_timeout
    one, three = (run(case, settings=Settings(p, 8, idle)) for p in (1, 3))
    for mine, theirs in zip(one, three, strict=True):
        assert_same_rows(mine, theirs)


@given(st.data())
def test_a_query_that_is_stopped_and_reopened_goes_on(data):
    case = data.draw(cases())
    stops = data.draw(st.sets(st.integers(1, len(case.epochs))))
    store = MemoryStore()
    join = InlineJoin(case.query, case.plan, settings=case.settings, store=store)
    got = []
    for number, epoch in enumerate(case.epochs):
        if number in stops:
            join = InlineJoin(case.query, settings=case.settings, store=store)
            assert join.manifest.epoch == number - 1
            assert join.manifest.plan == str(case.plan)
        got.append(join.run_epoch(epoch))
    for mine, theirs in zip(got, run(case), strict=True):
        assert_same_rows(mine, theirs)


@given(cases(max_streams=4, residuals=False, max_results=300))
def test_the_oracle_agrees_with_the_definition(case):
    tables = accepted_rows(case).tables(case.query)
    assert_same_rows(batch_join(case.query, tables), naive_join(case.query, tables))
