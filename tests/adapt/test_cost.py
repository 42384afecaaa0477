"""The cost model: kinds of work, their weights, and one unit for estimates and for what tasks count."""

from __future__ import annotations

import math

from midstream.adapt.cost import UNITS_PER_INSERTED_ROW, UNITS_PER_SENT_ROW, Cost, work_in_units
from midstream.engine.work import WorkCounts


def test_costs_are_added_and_multiplied_kind_by_kind():
    cost = Cost(
        probes=1, candidates=2, intermediate_rows=3, inserted_rows=4, stored_bytes=5, sent_rows=6, stages=7
    )
    assert cost + Cost() == cost
    assert cost + cost == cost * 2
    assert math.isclose((cost * 2.5).units, 2.5 * cost.units)


def test_counted_work_has_the_weights_of_estimated_work():
    assert work_in_units(WorkCounts()) == 0
    assert work_in_units(WorkCounts(probes=3, candidates=5, intermediate_rows=2)) == 3 + 5 + 2 * 2
    assert (
        work_in_units(WorkCounts(inserted_rows=1, sent_rows=1)) == UNITS_PER_INSERTED_ROW + UNITS_PER_SENT_ROW
    )


def test_comparisons_of_a_nested_loop_cost_nothing_because_nobody_makes_them():
    assert work_in_units(WorkCounts(comparisons=99)) == 0
