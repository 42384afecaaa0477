"""In which order the inputs of a node are best probed."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

from midstream.adapt.search_budget import SearchBudget
from midstream.adapt.stream_sets import StreamMask
from midstream.adapt.subplan_cost import SubplanCosts
from midstream.plan.placement import common_classes

# An order must be cheaper by more than rounding errors to count as cheaper.
_ROUNDING = 1e-9


def order_by_growth(costs: SubplanCosts, inputs: Sequence[StreamMask]) -> tuple[StreamMask, ...]:
    """An order in which probing rows first meet the inputs that leave the fewest of them."""
    return tuple(sorted(inputs, key=lambda one: (costs.sets.growth[one], one)))


def best_order(
    costs: SubplanCosts, inputs: Sequence[StreamMask], budget: SearchBudget
) -> tuple[StreamMask, ...]:
    """The order in which probes cost least, as far as swapping two inputs at a time leads to it.

    Each order needs estimates of other joins: when nothing is left of the budget, the best so far has to do.
    """
    placing = common_classes([costs.sets.classes[one] for one in inputs])
    best = order_by_growth(costs, inputs)
    least = costs.probing(best, placing)
    for i, j in combinations(range(len(best)), 2):
        budget.spend(len(inputs) ** 2)
        if budget.left <= 0:
            break
        swapped = list(best)
        swapped[i], swapped[j] = swapped[j], swapped[i]
        cost = costs.probing(swapped, placing, least)
        if cost < least * (1 - _ROUNDING):
            best, least = tuple(swapped), cost
    return best
