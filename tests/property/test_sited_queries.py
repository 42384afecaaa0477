"""Streams at sites: whatever the orders and placements, and however they change, results are the oracle's."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from midstream.inline import InlineJoin
from midstream.plan.sited_plan import JoinSequence
from midstream.plan.tree import Plan, sited
from midstream.query.network import Network, read_link
from midstream.query.topology import build_topology
from midstream.testing import accept, assert_same_rows, batch_join
from midstream.testing.hypothesis_strategies import Case, cases


@st.composite
def sited_plans(draw: st.DrawFn, names: tuple[str, ...]) -> Plan:
    """Any order and placements for each stream."""
    return sited(
        [
            JoinSequence(
                head,
                tuple(draw(st.permutations([name for name in names if name != head]))),
                tuple(draw(st.integers(0, 1)) for _ in names[1:]),
            )
            for head in names
        ]
    )


@st.composite
def sited_cases(draw: st.DrawFn) -> Case:
    """Any query whose streams live at up to three sites, some with two partitions, and any plan of it."""
    case = draw(cases(max_streams=5, max_results=2_000))
    names = case.query.names
    homes = {name: draw(st.sampled_from("xyz")) for name in names}
    topology = build_topology(
        names,
        homes,
        Network(default=read_link("50 ms", "1 mbit")),
        draw(st.sampled_from("xys")),
        {site: draw(st.integers(1, 2)) for site in set(homes.values())},
    )
    settings = replace(
        case.settings,
        groups=max(2, case.settings.groups),
        rows_moved_at_once=draw(st.sampled_from([0, 5, 50_000])),
    )
    query = replace(case.query, topology=topology)
    return replace(case, query=query, plan=draw(sited_plans(names)), settings=settings)


def expected(case: Case) -> pa.Table:
    accepted = accept(case.query, case.epochs, case.settings.idle_timeout)
    return batch_join(case.query, accepted.tables(case.query))


@given(sited_cases())
def test_any_order_and_placement_has_the_results_of_the_oracle(case):
    join = InlineJoin(case.query, case.plan, settings=case.settings)
    results = [join.run_epoch(epoch) for epoch in case.epochs]
    assert_same_rows(pa.concat_tables(results), expected(case))


@given(st.data())
def test_results_stay_the_same_when_the_plan_changes_and_the_query_is_restarted(data):
    case = data.draw(sited_cases())
    join = InlineJoin(case.query, case.plan, settings=case.settings)
    results = []
    for epoch in case.epochs:
        if data.draw(st.booleans()):
            join.migrate(data.draw(sited_plans(case.query.names)))
        background = data.draw(st.sampled_from([None, 0, 1, 2]))
        results.append(join.run_epoch(epoch, background_epochs=background))
        if data.draw(st.integers(0, 3)) == 0:
            join = InlineJoin(case.query, settings=case.settings, store=join.store)
    assert_same_rows(pa.concat_tables(results), expected(case))
