"""The best ways to join some parts of a plan, by dynamic programming over connected sets of them.

The best plan of a set is the best way to divide it into two or more sets, each with its own best plan. Sets
that no key class connects are left out: where an estimate is wrong, a cross product does the most harm.
Storing rows between epochs has a cost, so an intermediate state is part of a plan only where it pays;
otherwise its inputs are inputs of the node above.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterable, Iterator, Mapping
from math import inf

from midstream.adapt.input_order import best_order, order_by_growth
from midstream.adapt.join_graph import JoinGraph, PartMask
from midstream.adapt.search_budget import SearchBudget
from midstream.adapt.stream_sets import StreamMask
from midstream.adapt.subplan_cost import Subplan, SubplanCosts

# Up to this many parts the probe order of every node that is compared is improved, else of the best plan's.
_MAX_PARTS_FOR_ORDERING = 5


class ExhaustiveSearch:
    """The best subplans of more and more sets of parts."""

    def __init__(
        self,
        costs: SubplanCosts,
        graph: JoinGraph,
        subplans: Mapping[StreamMask, Subplan],
        budget: SearchBudget,
    ) -> None:
        """The ``subplans`` say how each part is joined in itself, down to its streams."""
        self.best: dict[StreamMask, Subplan] = dict(subplans)
        self._costs = costs
        self._graph = graph
        self._budget = budget
        self._least = inf
        self._improves_orders = len(graph.parts) <= _MAX_PARTS_FOR_ORDERING
        # By its first part: what each set costs as an input of any node, at least; its parts; its streams.
        # The cheapest come first, so that all that follow one which costs too much can be passed over.
        self._floors: list[list[tuple[float, PartMask, StreamMask]]] = [[] for _ in graph.parts]
        for i, part in enumerate(graph.parts):
            cost = subplans[part].cost if subplans[part].inputs else costs.sets.input_cost[part]
            self._add_floor(1 << i, part, cost)

    def search(self, connected: Iterable[PartMask]) -> bool:
        """Find the best subplan of each of some sets of parts; False if the budget does not suffice."""
        for members in sorted(connected, key=lambda one: (one.bit_count(), one)):
            if members.bit_count() == 1:
                continue
            streams = self._graph.streams_of(members)
            cheapest = self._cheapest(members)
            if cheapest is not None:
                self.best[streams] = cheapest
                self._add_floor(members, streams, cheapest.cost)
            # Not before the first of them: every search has to come to some result.
            if self._budget.left <= 0:
                return False
        return self._budget.left > 0

    def _add_floor(self, members: PartMask, streams: StreamMask, cost: float) -> None:
        first = (members & -members).bit_length() - 1
        insort(self._floors[first], (cost + self._costs.sets.index_cost[streams], members, streams))

    def _cheapest(self, members: PartMask) -> Subplan | None:
        """The best division of a set, of those that the budget allows to compare."""
        cheapest, self._least = None, inf
        for inputs in self._divided(members, (), 0.0):
            subplan = self._costs.join(self._ordered(inputs), self.best, self._least)
            cost = self._costs.with_stages(subplan)
            if cost < self._least:
                cheapest, self._least = subplan, cost
            # Each input is probed by the rows of every other.
            self._budget.spend(len(inputs) ** 2)
            if self._budget.left <= 0:
                break
        return cheapest

    def _ordered(self, inputs: tuple[StreamMask, ...]) -> tuple[StreamMask, ...]:
        if len(inputs) == 2:
            # Each probes the other.
            return inputs
        if self._improves_orders:
            return best_order(self._costs, inputs, self._budget)
        return order_by_growth(self._costs, inputs)

    def _divided(
        self, remaining: PartMask, chosen: tuple[StreamMask, ...], cost: float
    ) -> Iterator[tuple[StreamMask, ...]]:
        """The divisions of a set that begin with some inputs and may cost less than the least so far."""
        for floor, part, streams in self._floors[(remaining & -remaining).bit_length() - 1]:
            self._budget.spend(1)
            if cost + floor >= self._least:
                break
            if part & ~remaining:
                continue
            if part != remaining:
                yield from self._divided(remaining ^ part, (*chosen, streams), cost + floor)
            elif chosen:
                yield (*chosen, streams)
