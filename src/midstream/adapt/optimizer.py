"""The best plan: over all trees, of nodes with any number of inputs, by what they would cost.

Up to eight streams, by dynamic programming over connected sets of streams: the best plan of a set is the best
way to take it apart into two or more sets, each with its own best plan. Sets that nothing connects are left
out: if an estimate is wrong, a cross product is what hurts most. What is held between epochs costs,
so an intermediate state is kept only where it pays: otherwise its inputs are inputs of the node above.
Beyond eight streams pairs are put together greedily, and then taken apart again where that pays.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, islice

from midstream.adapt.cost import EXPIRED_MATCH_FACTOR, HELD, MATCH, PROBE, ROW, SENT, STAGE, cost_of
from midstream.adapt.estimate import Estimator
from midstream.adapt.subsets import StreamSet, Subsets, splits
from midstream.plan.build_layout import build_layout
from midstream.plan.tree import Plan, join, leaf
from midstream.query.query import Query

EXHAUSTIVE = 8
# With many streams so many nodes are tried to be done without.
_TRIES = 64
# Up to so many streams there is time to look for the best order of probes in every node.
_FEW = 5


@dataclass(frozen=True, slots=True)
class _Part:
    """The best plan of a set of streams."""

    parts: tuple[StreamSet, ...] = ()
    """What its top node joins; empty for a stream."""
    cost: float = 0.0
    """What it costs, apart from stages."""
    stage: int = 0
    """The stage that its top node runs in."""


@dataclass(frozen=True)
class Candidate:
    """A plan and what it costs in a second of event time."""

    plan: Plan
    cost: float


def best_plan(query: Query, estimator: Estimator, partitions: int) -> Candidate:
    """The plan that costs least, as far as the estimates go."""
    search = _Search(query, estimator, partitions)
    found = search.exhaustive() if len(query.names) <= EXHAUSTIVE else search.greedy()
    return Candidate(found, total_cost(query, found, estimator, partitions))


def total_cost(query: Query, plan: Plan, estimator: Estimator, partitions: int) -> float:
    """What a plan costs."""
    return cost_of(build_layout(query, plan), estimator, partitions).total


class _Search:
    """The best plans of more and more sets of streams."""

    def __init__(self, query: Query, estimator: Estimator, partitions: int) -> None:
        self.query = query
        self.estimator = estimator
        self.partitions = partitions
        self.sets = Subsets(estimator)
        self.best: dict[StreamSet, _Part] = {stream: _Part() for stream in self.sets.streams}
        self.stage = STAGE * estimator.epochs()

    def exhaustive(self) -> Plan:
        """The best of all plans."""
        sets, best = self.sets, self.best
        connected = sets.is_connected(sets.whole)
        for members in sorted(range(1, sets.whole + 1), key=int.bit_count):
            if members in best or (connected and not sets.is_connected(members)):
                continue
            found, least = _Part(), float("inf")
            for parts in splits(members):
                if not all(part in best for part in parts):
                    continue
                if sum(best[part].cost + sets.kept(part) for part in parts) >= least:
                    continue
                made = self._joined(parts, least)
                if made.cost + self.stage * made.stage < least:
                    found, least = made, made.cost + self.stage * made.stage
            best[members] = found
        return self._plan(sets.whole)

    def greedy(self) -> Plan:
        """Put together what costs least to put together, until all is one; then take apart what pays."""
        sets, tops = self.sets, list(self.best)
        while len(tops) > 1:
            pairs = [(a, b) for i, a in enumerate(tops) for b in tops[i + 1 :]]
            joined = [p for p in pairs if sets.classes(p[0]) & sets.classes(p[1])] or pairs
            made = {p: self._joined(p) for p in joined}
            pair = min(joined, key=lambda p: (made[p].cost + sets.kept(p[0] | p[1]), p))
            tops = [top for top in tops if top not in pair] + [pair[0] | pair[1]]
            self.best[pair[0] | pair[1]] = made[pair]
        return self._flattened(self._plan(sets.whole))

    def _flattened(self, plan: Plan, tries: int = _TRIES) -> Plan:
        """The plan without the intermediate states that do not pay."""
        cost = total_cost(self.query, plan, self.estimator, self.partitions)
        for without in islice(_without_one_node(plan), tries):
            tries -= 1
            if total_cost(self.query, without, self.estimator, self.partitions) < cost:
                return self._flattened(without, tries)
        return plan

    def _plan(self, members: StreamSet) -> Plan:
        parts = self.best[members].parts
        if not parts:
            return leaf(self.sets.named(members)[0])
        return join(*(self._plan(part) for part in self._reordered(parts)))

    def _joined(self, parts: tuple[StreamSet, ...], most: float = float("inf")) -> _Part:
        """The plan that joins the best plans of some sets in one node; nobody wants it if it costs more."""
        sets = self.sets
        placed = sets.spanning(parts)
        order = self._reordered(parts) if len(sets.names) <= _FEW else self._ordered(parts)
        # Without a key all rows are in one partition, and the others wait.
        alone = 1 if placed else self.partitions
        cost = self._probing(order, most) * alone
        stage = 0
        moved = []
        for part in parts:
            below = self.best[part]
            cost += below.cost + sets.kept(part) * alone
            if below.parts:
                above = sets.spanning(below.parts)
                alike = bool(above & placed) or not (above or placed)
                stage = max(stage, below.stage + (not alike))
                moved += [] if alike else [part]
        for part in parts:
            if part in moved:
                cost += (SENT * sets.rate(part) + HELD * sets.payload(part)) * alone
            elif not self.best[part].parts:
                # Rows for a later stage pass through the earlier ones.
                cost += (SENT * (1 + stage) * sets.rate(part) + sets.kept_stream(part)) * alone
        return _Part(parts, cost, stage)

    def _probing(self, parts: tuple[StreamSet, ...], most: float = float("inf")) -> float:
        """What the probes of a node over some sets cost, in this order."""
        sets, cost = self.sets, 0.0
        for head in parts:
            if cost > most:
                break
            seen, mine, going = head, head.bit_count(), sets.rate(head)
            waiting = [part for part in parts if part != head]
            while waiting:
                part = waiting.pop(self._next(seen, waiting))
                seen |= part
                cost += PROBE * going * sets.runs(part)
                going = sets.rate(seen) * mine / seen.bit_count()
                cost += (MATCH * EXPIRED_MATCH_FACTOR * part.bit_count() + ROW) * going
        return cost

    def _next(self, seen: StreamSet, waiting: Sequence[StreamSet]) -> int:
        """As the layout does: go on with what shares most."""
        if len(self.sets.keys) == 1:
            return 0
        here = self.sets.classes(seen)
        shared = [(here & self.sets.classes(part)).bit_count() for part in waiting]
        return shared.index(max(shared))

    def _ordered(self, parts: tuple[StreamSet, ...]) -> tuple[StreamSet, ...]:
        """An order in which rows probe: first what leaves least of them."""
        return tuple(sorted(parts, key=lambda part: (self.sets.growth(part), part)))

    def _reordered(self, parts: tuple[StreamSet, ...]) -> tuple[StreamSet, ...]:
        """The order in which probes cost least, as far as swapping two at a time finds it."""
        best = self._ordered(parts)
        cost = self._probing(best)
        for i, j in combinations(range(len(parts)), 2):
            swapped = list(best)
            swapped[i], swapped[j] = swapped[j], swapped[i]
            less = self._probing(tuple(swapped))
            if less < cost * (1 - 1e-9):
                best, cost = tuple(swapped), less
        return best


def _without_one_node(plan: Plan) -> Iterator[Plan]:
    """The plan with one of its inner nodes dissolved into the node above."""
    for i, child in enumerate(plan.inputs):
        if not child.inputs:
            continue
        yield join(*plan.inputs[:i], *child.inputs, *plan.inputs[i + 1 :])
        for changed in _without_one_node(child):
            yield join(*plan.inputs[:i], changed, *plan.inputs[i + 1 :])
