"""Any query, any plan, any epochs: the results are those of DuckDB."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from midstream.inline import InlineJoin
from midstream.protocol.settings import Settings
from midstream.storage.memory_store import MemoryStore
from midstream.testing import accept, assert_same_rows, batch_join, naive_join
from midstream.testing.domains import DOMAINS
from midstream.testing.hypothesis_strategies import Case, cases, plans
from midstream.testing.oracle import matching_rows, outputs
from midstream.testing.reference import Accepted


def run_case(case: Case, plan=None, settings=None) -> list[pa.Table]:
    join = InlineJoin(case.query, plan or case.plan, settings=settings or case.settings)
    return [join.run_epoch(epoch) for epoch in case.epochs]


def accepted_rows(case: Case) -> Accepted:
    return accept(case.query, case.epochs, case.settings.idle_timeout)


@given(cases())
def test_every_epoch_has_the_results_whose_newest_row_it_brings(case):
    accepted = accepted_rows(case)
    tables = accepted.tables(case.query)
    matches = matching_rows(case.query, tables)
    # A result belongs to the epoch of its newest row, so one batch join gives the results of all epochs.
    arrival = {
        name: np.repeat(
            np.arange(len(case.epochs)),
            [e[name].num_rows if name in e else 0 for e in accepted.epochs],
        )
        for name in case.query.names
    }
    newest = np.max([arrival[n][matches.column(n).to_numpy()] for n in case.query.names], axis=0, initial=0)
    results = run_case(case)
    counts = [int((newest == epoch).sum()) for epoch in range(len(case.epochs))]
    assert [table.num_rows for table in results] == counts
    for epoch, table in enumerate(results):
        expected = outputs(case.query, tables, matches.filter(pa.array(newest == epoch)))
        assert_same_rows(table, expected, f"epoch {epoch}")


@pytest.mark.parametrize("domain", DOMAINS, ids=lambda domain: domain.name)
@given(data=st.data())
def test_keys_of_every_kind_meet_as_in_the_oracle(domain, data):
    case = data.draw(cases(max_streams=3, residuals=False, domains=(domain,), max_results=1000))
    expected = batch_join(case.query, accepted_rows(case).tables(case.query))
    assert_same_rows(pa.concat_tables(run_case(case)), expected)


@given(cases())
def test_every_row_is_counted_once(case):
    join = InlineJoin(case.query, case.plan, settings=case.settings)
    given_by_stream = dict.fromkeys(case.query.names, 0)
    for epoch, fates in zip(case.epochs, accepted_rows(case).history, strict=True):
        join.run_epoch(epoch)
        for name, fate in fates.items():
            stream = join.manifest.streams[name]
            given_by_stream[name] += epoch[name].num_rows if name in epoch else 0
            given_rows = given_by_stream[name]
            assert stream.rows == given_rows
            assert (stream.late, stream.null_time, stream.null_key) == (
                fate.late,
                fate.null_time,
                fate.null_key,
            )
            assert fate.accepted + fate.late + fate.null_time + fate.null_key == given_rows
            assert (stream.latest, stream.watermark, stream.idle) == (
                fate.latest,
                fate.watermark,
                fate.idle,
            )
    late = {name: sum(t.num_rows for t in tables) for name, tables in join.late.items()}
    assert late == {n: m.late + m.null_time for n, m in join.manifest.streams.items()}


@given(st.data())
def test_two_plans_have_the_same_results(data):
    case = data.draw(cases())
    other = data.draw(plans(case.query.names))
    for actual, expected in zip(run_case(case), run_case(case, plan=other), strict=True):
        assert_same_rows(actual, expected)


@given(cases())
def test_one_and_three_partitions_have_the_same_results(case):
    idle = case.settings.idle_timeout
    one, three = (run_case(case, settings=Settings(p, 8, idle)) for p in (1, 3))
    for actual, expected in zip(one, three, strict=True):
        assert_same_rows(actual, expected)


@given(st.data())
def test_a_query_continues_after_restarts(data):
    case = data.draw(cases())
    stops = data.draw(st.sets(st.integers(1, len(case.epochs))))
    store = MemoryStore()
    join = InlineJoin(case.query, case.plan, settings=case.settings, store=store)
    results = []
    for number, epoch in enumerate(case.epochs):
        if number in stops:
            join = InlineJoin(case.query, settings=case.settings, store=store)
            assert join.manifest.epoch == number - 1
            assert join.manifest.plan == str(case.plan)
        results.append(join.run_epoch(epoch))
    for actual, expected in zip(results, run_case(case), strict=True):
        assert_same_rows(actual, expected)


@given(cases(max_streams=4, residuals=False, max_results=300))
def test_the_oracle_agrees_with_the_definition(case):
    tables = accepted_rows(case).tables(case.query)
    assert_same_rows(batch_join(case.query, tables), naive_join(case.query, tables))
