"""Whatever the orders and placements, sited plans make the results of a batch join, each once."""

from collections import Counter
from functools import partial

from hypothesis import given, settings
from hypothesis import strategies as st

from midstream.plan.site_operators import operators_of_sequence
from midstream.plan.sited_plan import JoinSequence, SitedPlan
from midstream.query.network import Link, Network
from midstream.query.topology import Topology
from midstream.testing.hypothesis_strategies import Case, cases
from midstream.testing.reference import accept, joins, naive_join
from midstream.testing.sited_execution import HeadRun, ReferenceLinkTraffic, SitedExecution, Work
from tests.sites.sited_cases import paper_model

NETWORK = Network(Link(latency=0.0, bytes_per_second=1.0))


@st.composite
def sited(draw, streams) -> tuple[Topology, list[SitedPlan]]:
    """Any sites of some streams, and two plans to change between."""
    sites = [f"N{i}" for i in range(len(streams))]
    topology = Topology(
        site_of={name: draw(st.sampled_from(sites)) for name in streams},
        sink=draw(st.sampled_from([*sites, "sink"])),
        network=NETWORK,
    )
    plans = []
    for _ in range(2):
        sequences = []
        for head in streams:
            order = tuple(draw(st.permutations([name for name in streams if name != head])))
            placements = tuple(draw(st.sampled_from((0, 1))) for _ in order)
            sequences.append(JoinSequence(head, order, placements))
        plans.append(SitedPlan(tuple(sequences)))
    return topology, plans


@settings(max_examples=100, deadline=None)
@given(case=cases(max_streams=4, max_results=300), data=st.data())
def test_results_are_those_of_the_batch_join(case: Case, data):
    query = case.query
    topology, plans = data.draw(sited(query.names))
    accepted = accept(query, case.epochs)
    execution = SitedExecution(
        topology=topology,
        joins=partial(joins, query),
        row_bytes=dict.fromkeys(query.names, 1.0),
        window=len(case.epochs),
    )
    work = Work()
    found = []
    change = data.draw(st.integers(0, len(accepted.epochs)))
    for number, epoch in enumerate(accepted.epochs):
        rows = {name: table.to_pylist() for name, table in epoch.items()}
        found += execution.run_epoch(plans[number >= change], rows, work)
    expected = naive_join(query, accepted.tables(query))
    assert len(found) == expected.num_rows
    assert _bag(_outputs(query, one) for one in found) == _bag(expected.to_pylist())
    assert all(source != target for source, target in work.links)


def _outputs(query, found):
    row = {}
    for output in query.outputs:
        value = found[output.ref.stream]
        for step in output.ref.path:
            value = None if value is None else value[step]
        row[output.name] = value
    return row


def _bag(rows) -> Counter[str]:
    return Counter(repr(sorted(row.items())) for row in rows)


def test_what_is_shipped_is_counted_once_per_link():
    """Example 1: S1 goes to N2 both as rows that probe and as a copy, but only once."""
    topology = paper_model(3).topology
    plan = SitedPlan(
        (
            JoinSequence("S1", ("S2", "S3"), (1, 1)),
            JoinSequence("S2", ("S1", "S3"), (0, 1)),
            JoinSequence("S3", ("S1", "S2"), (0, 0)),
        )
    )
    execution = SitedExecution(
        topology=topology,
        joins=lambda stream, rows: True,
        row_bytes={"S1": 10.0, "S2": 20.0, "S3": 30.0},
        window=1,
    )
    work = Work()
    assert len(execution.run_epoch(plan, {"S1": [1, 2], "S2": [3], "S3": [4]}, work)) == 2
    assert work.links == {
        ("N1", "N2"): ReferenceLinkTraffic(1, 2, 20.0),
        ("N1", "N3"): ReferenceLinkTraffic(1, 2, 20.0),
        ("N2", "N3"): ReferenceLinkTraffic(2, 3, 20.0 + 60.0),
        ("N3", "N0"): ReferenceLinkTraffic(1, 2, 120.0),
    }
    # S1 and S2 at N2, all three at N3.
    assert work.stored_rows == 3 + 4
    # S1 and S2 find nothing of S2 and S1, S3 before them; S2 finds two of S1, S3 then one of S2 each.
    assert work.probed_rows == 2 + 2 + 2


def test_a_mix_of_two_plans_loses_results():
    """Or nothing could be tested by results: S1 is sent to N2, where the other plan does not join it."""
    topology = paper_model(2).topology
    old = operators_of_sequence(JoinSequence("S1", ("S2",), (0,)), topology)
    new = operators_of_sequence(JoinSequence("S1", ("S2",), (1,)), topology)
    found = {}
    for name, operators in {"old": old, "new": new, "mix": {"N1": new["N1"], "N2": old["N2"]}}.items():
        run = HeadRun(
            topology=topology,
            joins=lambda stream, rows: True,
            row_bytes={"S1": 1.0, "S2": 1.0},
            operators=operators,
            window_at=lambda site, stream: [(0, 1)],
            work=Work(),
        )
        found[name] = len(run.results("S1", 1, [1]))
    assert found == {"old": 1, "new": 1, "mix": 0}
