"""Costs that count once what sequences share, and plans that are found by them."""

from itertools import permutations, product
from random import Random

import pytest

from midstream.plan.site_operators import JoinOperator, ShipOperator, UpdateOperator, node_operator_sets
from midstream.plan.sited_plan import JoinSequence, SitedPlan
from midstream.sites.cost import StreamFigures
from midstream.sites.greedy import greedy_plan
from midstream.sites.shared_plan import SharedCosts, gathered_plan, shared_plan
from tests.sites.sited_cases import PAPER_LINK, paper_model, random_figures, random_model


def _cost_of_operators(model, figures, plan) -> float:
    """The same cost from the operators of all sites: each is there once."""
    found, total = {}, 0.0
    for sequence in plan.sequences:
        flow = model.start(sequence.head, figures[sequence.head])
        found[sequence.head, sequence.head] = flow
        for stream, placement in zip(sequence.order, sequence.placements, strict=True):
            flow = model.join(flow, stream, figures[stream], placement)
            found[sequence.head, stream] = flow
    for site, operators in node_operator_sets(plan, model.topology).items():
        for operator in operators:
            if isinstance(operator, ShipOperator):
                flow = found[operator.flow.head, operator.flow.last]
                size = flow.rate * flow.row_bytes
                total += model.topology.network.transfer_seconds(site, operator.site, size)
            elif isinstance(operator, UpdateOperator):
                total += figures[operator.stream].rate * model.update_seconds
            elif isinstance(operator, JoinOperator):
                window = figures[operator.stream].rate * model.windows[operator.stream]
                rate = found[operator.flow.head, operator.flow.last].rate
                total += rate * model.probe_seconds * window
    return total


def test_what_several_sequences_need_is_counted_once():
    rng = Random(4)
    for _ in range(200):
        model = random_model(rng, rng.randint(2, 5))
        figures = {name: random_figures(rng) for name in model.topology.site_of}
        costs = SharedCosts(model, figures)
        for plan in (greedy_plan(model, figures), gathered_plan(model, figures, "S1")):
            assert costs.plan_cost(plan) == pytest.approx(_cost_of_operators(model, figures, plan))


def test_everything_at_one_site_is_shipped_there_once():
    model = paper_model(4, sink="N1")
    figures = dict.fromkeys(model.topology.streams, StreamFigures(100.0, 0.01, 150.0))
    plan = gathered_plan(model, figures, "S1")
    shipped = [
        o
        for ops in node_operator_sets(plan, model.topology).values()
        for o in ops
        if isinstance(o, ShipOperator)
    ]
    assert sorted(map(str, shipped)) == ["ship(S2, N1)", "ship(S3, N1)", "ship(S4, N1)"]
    assert shared_plan(model, figures) == plan
    computing = 4 * 100 * 1e-6 + 4 * (100 + 50 + 25) * 50e-6
    shipping = 3 * PAPER_LINK.transfer_seconds(100 * 150)
    assert SharedCosts(model, figures).plan_cost(plan) == pytest.approx(shipping + computing)


def _all_plans(streams):
    per_head = [
        [
            JoinSequence(head, order, placements)
            for order in permutations([name for name in streams if name != head])
            for placements in product((0, 1), repeat=len(streams) - 1)
        ]
        for head in streams
    ]
    return (SitedPlan(sequences) for sequences in product(*per_head))


def test_plans_of_three_streams_are_the_best_of_all():
    """By trying all 512 of them; for more streams nobody can tell."""
    rng = Random(5)
    for _ in range(40):
        model = random_model(rng, 3)
        figures = {name: random_figures(rng) for name in model.topology.site_of}
        costs = SharedCosts(model, figures)
        best = min(costs.plan_cost(plan) for plan in _all_plans(model.topology.streams))
        assert costs.plan_cost(shared_plan(model, figures)) == pytest.approx(best)


def test_many_streams_are_gathered_or_joined_greedily():
    model = paper_model(8, sink="N3")
    figures = dict.fromkeys(model.topology.streams, StreamFigures(100.0, 0.01, 150.0))
    assert shared_plan(model, figures) == gathered_plan(model, figures, "S3")
