"""Costs, the greedy plan and the best one, on the figures of the paper and on random ones."""

from itertools import permutations, product
from random import Random

import pytest

from midstream.errors import MidstreamError, PlanError, QueryError
from midstream.plan.explain_sites import sited_plan_to_dict, sited_plan_to_mermaid
from midstream.plan.sited_plan import JoinSequence
from midstream.query.network import Link, Network, read_link
from midstream.query.topology import build_topology
from midstream.sites.cost import StreamFigures, neighbours_of
from midstream.sites.explain import explain_sited
from midstream.sites.greedy import greedy_plan, greedy_sequence, keeps_invariant
from midstream.sites.optimal import gap, optimal_plan, optimal_sequence
from tests.plain_errors import assert_plain
from tests.sites.sited_cases import PAPER_LINK, paper_model, random_figures, random_model

FIGURES = {
    "S1": StreamFigures(100.0, 0.01, 150.0),
    "S2": StreamFigures(50.0, 0.02, 150.0),
    "S3": StreamFigures(200.0, 0.03, 200.0),
}


def test_equations_1_and_2_by_hand():
    model = paper_model(3)
    flow = model.start("S1", FIGURES["S1"])
    probing = 100 * 1e-6 * 25
    assert model.costs(flow, "S2", FIGURES["S2"]) == pytest.approx(
        (0.005 + 50 * 150 / 128_000 + 50e-6 + probing, 0.005 + 100 * 150 / 128_000 + 50e-6 + probing)
    )
    flow = model.join(flow, "S2", FIGURES["S2"], 0)
    # r = 100 min(.01, .02) 25, f = max(.01, .02), t = 150 + 150; it is still where S1 is.
    assert (flow.rate, flow.selectivity, flow.row_bytes, flow.site) == (25.0, 0.02, 300.0, "N1")
    probing = 25 * 1e-6 * 100
    assert model.costs(flow, "S3", FIGURES["S3"]) == pytest.approx(
        (0.005 + 200 * 200 / 128_000 + 200e-6 + probing, 0.005 + 25 * 300 / 128_000 + 200e-6 + probing)
    )


def test_algorithm_1_takes_the_cheapest_join_first():
    model = paper_model(3)
    assert greedy_sequence(model, FIGURES, "S1") == JoinSequence("S1", ("S2", "S3"), (0, 1))
    total = model.sequence_cost(JoinSequence("S1", ("S2", "S3"), (0, 1)), FIGURES)
    flow = model.start("S1", FIGURES["S1"])
    first = model.costs(flow, "S2", FIGURES["S2"])[0]
    second = model.costs(model.join(flow, "S2", FIGURES["S2"], 0), "S3", FIGURES["S3"])[1]
    assert total == first + second


def test_what_is_at_a_site_costs_nothing_to_get_there():
    topology = build_topology(["a", "b"], {"a": "x"}, Network(default=PAPER_LINK), sink="x")
    assert topology.site_of == {"a": "x", "b": "x"}
    assert topology.network.transfer_seconds("x", "x", 1e9) == 0


def test_greedy_plans_keep_the_invariant_and_the_best_plans_cost_no_more():
    rng = Random(2)
    worse = 0
    for _ in range(60):
        model = random_model(rng, rng.randint(2, 4))
        figures = {name: random_figures(rng) for name in model.topology.site_of}
        plan = greedy_plan(model, figures)
        best = optimal_plan(model, figures)
        for sequence, least in zip(plan.sequences, best.sequences, strict=True):
            assert keeps_invariant(model, figures, sequence)
            others = [name for name in model.topology.site_of if name != sequence.head]
            all_costs = [
                model.sequence_cost(JoinSequence(sequence.head, order, placements), figures)
                for order in permutations(others)
                for placements in product((0, 1), repeat=len(others))
            ]
            assert model.sequence_cost(least, figures) == min(all_costs)
        worse += gap(model, figures, plan) > 1.001
    assert worse > 5, "greedy must not always be the best, or the test looks at nothing"


def test_the_invariant_is_broken_by_another_order_and_by_another_placement():
    model = paper_model(3)
    assert not keeps_invariant(model, FIGURES, JoinSequence("S1", ("S3", "S2"), (0, 1)))
    assert not keeps_invariant(model, FIGURES, JoinSequence("S1", ("S2", "S3"), (1, 1)))


def test_streams_without_a_predicate_between_them_make_all_pairs():
    model = paper_model(3)
    figures = FIGURES["S3"]
    clique = model.join(model.start("S1", FIGURES["S1"]), "S3", figures, 1)
    chain = neighbours_of(["S1", "S2", "S3"], [("S1", "S2"), ("S2", "S3")])
    assert chain["S2"] == {"S1", "S3"}
    apart = type(model)(
        topology=model.topology,
        windows=model.windows,
        probe_seconds=1e-6,
        update_seconds=1e-6,
        neighbours=chain,
    )
    assert apart.join(apart.start("S1", FIGURES["S1"]), "S3", figures, 1).rate == 100 * clique.rate


def test_joins_without_a_predicate_come_last():
    """In a chain there always is one with a predicate, and it is taken even if it costs more."""
    rng = Random(3)
    model = random_model(rng, 5)
    while model.neighbours is None:
        model = random_model(rng, 5)
    figures = {name: random_figures(rng) for name in model.topology.site_of}
    for sequence in greedy_plan(model, figures).sequences:
        joined = {sequence.head}
        for stream in sequence.order:
            assert model.neighbours[stream] & joined
            joined.add(stream)


def test_the_best_plan_of_many_streams_is_refused():
    model = paper_model(7)
    figures = dict.fromkeys(model.topology.site_of, FIGURES["S1"])
    with pytest.raises(PlanError, match="at most 6 streams; got 7 streams") as raised:
        optimal_plan(model, figures)
    assert_plain(raised.value)
    # One sequence of them is only slow.
    assert optimal_sequence(paper_model(5), figures, "S1").head == "S1"


@pytest.mark.parametrize("bandwidth", ["", "fast", "0 mbit", "-1 mbit", "50", "50 MB", None, 5])
def test_bandwidths_that_are_none(bandwidth):
    with pytest.raises(QueryError, match="bandwidth of a link must be") as raised:
        read_link("5 ms", bandwidth)
    assert_plain(raised.value)


def test_links_as_users_describe_them():
    assert read_link("5 ms", "1024 kbit") == PAPER_LINK
    assert read_link("0 ms", "1.5 Gbit") == Link(latency=0.0, bytes_per_second=187_500_000.0)
    special = Network(PAPER_LINK, {frozenset(("a", "b")): Link(latency=1.0, bytes_per_second=1.0)})
    assert special.transfer_seconds("b", "a", 2) == 3
    assert special.transfer_seconds("a", "c", 0) == 0.005


def test_sites_of_streams():
    network = Network(PAPER_LINK, {frozenset(("a", "empty")): PAPER_LINK})
    topology = build_topology(["x", "y", "z"], {"x": "a", "y": "a", "z": "b"}, network)
    assert (topology.sink, topology.sites) == ("a", ("a", "b", "empty"))
    assert topology.streams_at("a") == ("x", "y")
    with pytest.raises(MidstreamError, match="got a site of 'q'") as raised:
        build_topology(["x"], {"q": "a"}, network)
    assert_plain(raised.value)
    with pytest.raises(MidstreamError, match="neither one for 'y' nor one for the sink") as raised:
        build_topology(["x", "y"], {"x": "a"}, network)
    assert_plain(raised.value)


def test_a_plan_as_text_json_and_diagram():
    model = paper_model(3, sink="N3")
    plan = greedy_plan(model, FIGURES)
    text = explain_sited(plan, model, FIGURES)
    assert "  S1: [S2, S3], [0, 1]   0." in text
    assert "  N3 (S3, sink)\n    join(S2^S1, S3)" in text
    shown = sited_plan_to_dict(plan, model.topology)
    assert shown["sequences"][0] == {"head": "S1", "order": ["S2", "S3"], "placements": [0, 1]}
    assert "ship(S2, N1)" in shown["operators"]["N2"]
    diagram = sited_plan_to_mermaid(plan, model.topology)
    assert diagram.startswith('flowchart LR\n    n0["N1: S1"]')
    assert '    n1 -->|"S2"| n0' in diagram
