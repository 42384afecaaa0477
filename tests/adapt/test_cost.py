"""The cost model: kinds of work, their weights, and one unit for estimates and for what tasks count."""

from __future__ import annotations

import math

from midstream.adapt.cost import work_in_units
from midstream.engine.work import WorkCounts
from midstream.state.costs import DEFAULT_WEIGHTS, Cost


def test_costs_are_added_and_multiplied_kind_by_kind():
    cost = Cost(
        probes=1, candidates=2, intermediate_rows=3, inserted_rows=4, stored_bytes=5, sent_rows=6, stages=7
    )
    assert cost + Cost() == cost
    assert cost + cost == cost * 2
    assert math.isclose((cost * 2.5).units(DEFAULT_WEIGHTS), 2.5 * cost.units(DEFAULT_WEIGHTS))


def test_counted_work_has_the_weights_of_estimated_work():
    assert work_in_units(WorkCounts()) == 0
    assert work_in_units(WorkCounts(probes=3, candidates=5, intermediate_rows=2)) == 3 + 5 + 2 * 2
    weights = DEFAULT_WEIGHTS
    both = work_in_units(WorkCounts(inserted_rows=1, sent_rows=1))
    assert both == weights.inserted_rows + weights.sent_rows


def test_comparisons_of_a_nested_loop_cost_nothing_because_nobody_makes_them():
    assert work_in_units(WorkCounts(comparisons=99)) == 0
