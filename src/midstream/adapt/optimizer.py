"""The best plan: over all trees, of nodes with any number of inputs, by what they would cost.

Up to eight streams, by dynamic programming over connected sets of streams: the best plan of a set is the best
way to divide it into two or more sets, each with its own best plan. Sets that no key class connects are left
out: where an estimate is wrong, a cross product does the most harm. Storing rows between epochs has a cost,
so an intermediate state is part of a plan only where it pays; otherwise its inputs are inputs of the node
above. With more than eight streams pairs are joined greedily, and nodes are dissolved where that pays.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, islice
from math import inf

from midstream.adapt.estimate import Estimator
from midstream.adapt.plan_cost import plan_cost
from midstream.adapt.single_partition import SinglePartition, max_unplaced_bytes
from midstream.adapt.subplan_cost import Subplan, SubplanCosts
from midstream.adapt.subsets import StreamMask, splits
from midstream.plan.placement import common_classes
from midstream.plan.tree import Plan, join, leaf

MAX_EXHAUSTIVE_STREAMS = 8
"""Eight streams take some tenths of a second; each further stream takes about five times as long."""
# With more streams, how many plans with one node dissolved are looked at: some milliseconds.
_MAX_FLATTENED_PLANS = 64
# Up to this many streams the probe order of every node that is compared is improved, else of the best plan's.
_MAX_STREAMS_FOR_ORDERING = 5
# An order must be cheaper by more than rounding errors to count as cheaper.
_ROUNDING = 1e-9


@dataclass(frozen=True)
class CostedPlan:
    """A plan and what it costs in units per second."""

    plan: Plan
    cost: float


def best_plan(estimator: Estimator, partitions: int, rule: SinglePartition = "auto") -> CostedPlan:
    """The plan that costs least, by the estimates, of those whose nodes in one partition are allowed."""
    most = max_unplaced_bytes(estimator.query, partitions, rule)
    search = _Search(estimator, partitions, most)
    exhaustive = len(estimator.query.names) <= MAX_EXHAUSTIVE_STREAMS
    plan = search.exhaustive() if exhaustive else search.greedy()
    return CostedPlan(plan, plan_cost(plan, estimator, partitions))


class _Search:
    """The best plans of more and more sets of streams."""

    def __init__(self, estimator: Estimator, partitions: int, max_unplaced_bytes: float) -> None:
        self.costs = SubplanCosts(estimator, partitions, max_unplaced_bytes)
        self.sets = self.costs.sets
        self.best: dict[StreamMask, Subplan] = {stream: Subplan() for stream in self.sets.streams}

    def exhaustive(self) -> Plan:
        """The best of all plans."""
        sets, best = self.sets, self.best
        connected = sets.is_connected(sets.all_streams)
        # What each set costs as an input of any node, at least: splits that cost more are passed over.
        floors = {stream: sets.index_cost[stream] + sets.input_cost[stream] for stream in sets.streams}
        for members in sorted(range(1, sets.all_streams + 1), key=int.bit_count):
            if members in best or (connected and not sets.is_connected(members)):
                continue
            cheapest, least = Subplan(), inf
            for inputs in splits(members, best):
                if sum([floors[one] for one in inputs]) >= least:
                    continue
                subplan = self._joined(inputs, least)
                cost = self.costs.with_stages(subplan)
                if cost < least:
                    cheapest, least = subplan, cost
            best[members] = cheapest
            floors[members] = cheapest.cost + sets.index_cost[members]
        return self._plan(sets.all_streams)

    def greedy(self) -> Plan:
        """The best of a few plans: one node for all streams, and pairs that are joined one after the other.

        Whether pairs are better chosen with or without a view to stages depends on the query: both are tried.
        """
        one_node = join(*map(self._plan, self._best_order(self.sets.streams)))
        pairwise = (self._pairwise(stage_cost) for stage_cost in (0.0, self.costs.stage_cost))
        return min([one_node, *map(self._flattened, pairwise)], key=self.costs.of_plan)

    def _pairwise(self, stage_cost: float) -> Plan:
        """Join the pair of plans that costs least until all is one plan."""
        sets, tops = self.sets, list(self.sets.streams)
        while len(tops) > 1:
            pairs = list(combinations(tops, 2))
            connected = [(a, b) for a, b in pairs if sets.classes[a] & sets.classes[b]] or pairs
            joined = {(a, b): self._joined((a, b)) for a, b in connected}
            costs = {
                (a, b): subplan.cost + stage_cost * subplan.stage + sets.index_cost[a | b]
                for (a, b), subplan in joined.items()
            }
            a, b = min(connected, key=lambda pair: (costs[pair], pair))
            self.best[a | b] = joined[a, b]
            tops = [top for top in tops if top not in (a, b)] + [a | b]
        return self._plan(sets.all_streams)

    def _flattened(self, plan: Plan, remaining: int = _MAX_FLATTENED_PLANS) -> Plan:
        """The plan without the intermediate states that do not pay."""
        cost = self.costs.of_plan(plan)
        for without in islice(_without_one_node(plan), remaining):
            remaining -= 1
            if self.costs.of_plan(without) < cost:
                return self._flattened(without, remaining)
        return plan

    def _plan(self, members: StreamMask) -> Plan:
        inputs = self.best[members].inputs
        if not inputs:
            return leaf(self.sets.names_of(members)[0])
        return join(*(self._plan(one) for one in self._best_order(inputs)))

    def _joined(self, inputs: tuple[StreamMask, ...], limit: float = inf) -> Subplan:
        """The plan that joins the best plans of some sets in one node; from a limit on it costs infinity."""
        few = len(self.sets.names) <= _MAX_STREAMS_FOR_ORDERING
        order = self._best_order(inputs) if few else self._order_by_growth(inputs)
        return self.costs.join(order, self.best, limit)

    def _order_by_growth(self, inputs: Sequence[StreamMask]) -> tuple[StreamMask, ...]:
        """An order in which probing rows first meet the inputs that leave the fewest of them."""
        return tuple(sorted(inputs, key=lambda one: (self.sets.growth[one], one)))

    def _best_order(self, inputs: Sequence[StreamMask]) -> tuple[StreamMask, ...]:
        """The order in which probes cost least, as far as swapping two inputs at a time leads to it."""
        placing = common_classes([self.sets.classes[one] for one in inputs])
        best = self._order_by_growth(inputs)
        least = self.costs.probing(best, placing)
        for i, j in combinations(range(len(best)), 2):
            swapped = list(best)
            swapped[i], swapped[j] = swapped[j], swapped[i]
            cost = self.costs.probing(swapped, placing, least)
            if cost < least * (1 - _ROUNDING):
                best, least = tuple(swapped), cost
        return best


def _without_one_node(plan: Plan) -> Iterator[Plan]:
    """The plan with one of its inner nodes dissolved into the node above."""
    for i, child in enumerate(plan.inputs):
        if not child.inputs:
            continue
        yield join(*plan.inputs[:i], *child.inputs, *plan.inputs[i + 1 :])
        for changed in _without_one_node(child):
            yield join(*plan.inputs[:i], changed, *plan.inputs[i + 1 :])
