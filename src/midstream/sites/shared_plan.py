"""Plans whose sequences share: what they cost together, and how to find a good one.

By the equations of the paper each sequence pays for its copies by itself. But rows that are shipped to a site
are there for all sequences, and so is a window that is kept. Here what several sequences need is counted
once, and so are results on their way to the sink. Then bringing all streams to one site may be the best plan,
which the equations never find.

Sequences depend on each other now, so there are too many plans to look at all. One sequence after the other
is replaced by the best one given what the others ship anyway, until none can be improved. This begins from
several plans: the greedy one, the best by the equations, those that bring everything to one stream's site.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from midstream.plan.sited_plan import DESTINATION, SOURCE, JoinSequence, Placement, SitedPlan
from midstream.query.network import Site
from midstream.sites.cost import FlowFigures, SiteCostModel, StreamFigures
from midstream.sites.greedy import greedy_plan
from midstream.sites.optimal import MAX_STREAMS, optimal_plan

SharedResource = tuple[str, str, Site]
"""What is done once for all sequences: a stream is shipped to a site, or its window is kept there."""
CostItem = tuple[SharedResource | None, float]
"""Something that costs; with what it is if others may need the same."""


@dataclass(frozen=True, slots=True)
class SharedCosts:
    """What plans cost if their sequences share."""

    model: SiteCostModel
    figures: Mapping[str, StreamFigures]

    def plan_cost(self, plan: SitedPlan) -> float:
        """The cost of all sequences together."""
        items = [item for sequence in plan.sequences for item in self._items(sequence)]
        shared = {what: cost for what, cost in items if what is not None}
        return sum(shared.values()) + sum(cost for what, cost in items if what is None)

    def improve(self, plan: SitedPlan) -> SitedPlan:
        """The plan after replacing sequences, as long as that makes it cheaper."""
        improved = True
        while improved:
            improved = False
            for sequence in plan.sequences:
                others = [one for one in plan.sequences if one is not sequence]
                shipped = frozenset(
                    what for one in others for what, _ in self._items(one) if what is not None
                )
                better = self._best_sequence(sequence, shipped)
                if better != sequence:
                    plan, improved = plan.with_sequence(better), True
        return plan

    def _best_sequence(self, known: JoinSequence, shipped: frozenset[SharedResource]) -> JoinSequence:
        """The sequence that adds least to what is done anyway; the known one, unless another adds less."""
        best, bound = known, _added(self._items(known), shipped) * (1 - 1e-9)
        start = self.model.start(known.head, self.figures[known.head])
        streams = self.model.topology.streams

        def search(
            flow: FlowFigures, placements: tuple[Placement, ...], done: frozenset[SharedResource], cost: float
        ) -> None:
            nonlocal best, bound
            if len(flow.streams) == len(streams):
                total = cost + _added(self._delivery(flow), done)
                if total < bound:
                    best, bound = JoinSequence(known.head, flow.streams[1:], placements), total
                return
            for stream in streams:
                for placement in (SOURCE, DESTINATION) if stream not in flow.streams else ():
                    items, after = self._join(flow, stream, placement)
                    total = cost + _added(items, done)
                    if total < bound:
                        now = done.union(what for what, _ in items if what is not None)
                        search(after, (*placements, placement), now, total)

        search(start, (), shipped, 0.0)
        return best

    def _items(self, sequence: JoinSequence) -> list[CostItem]:
        flow = self.model.start(sequence.head, self.figures[sequence.head])
        found: list[CostItem] = []
        for stream, placement in zip(sequence.order, sequence.placements, strict=True):
            items, flow = self._join(flow, stream, placement)
            found += items
        return [*found, *self._delivery(flow)]

    def _join(
        self, flow: FlowFigures, stream: str, placement: Placement
    ) -> tuple[list[CostItem], FlowFigures]:
        """What one join costs, and what the rows have become then."""
        model, figures = self.model, self.figures[stream]
        home = model.topology.site_of[stream]
        after = model.join(flow, stream, figures, placement)
        items: list[CostItem] = [
            (("update", stream, after.site), figures.rate * model.update_seconds),
            (None, flow.rate * model.probe_seconds * figures.rate * model.windows[stream]),
        ]
        if home != flow.site:
            source, size = (home, figures.rate * figures.row_bytes)
            what: SharedResource | None = ("ship", stream, flow.site)
            if placement == DESTINATION:
                source, size = flow.site, flow.rate * flow.row_bytes
                what = ("ship", flow.streams[0], home) if len(flow.streams) == 1 else None
            items.append((what, model.topology.network.transfer_seconds(source, after.site, size)))
        return items, after

    def _delivery(self, flow: FlowFigures) -> list[CostItem]:
        """Results go to the sink."""
        topology = self.model.topology
        size = flow.rate * flow.row_bytes
        return [(None, topology.network.transfer_seconds(flow.site, topology.sink, size))]


def gathered_plan(model: SiteCostModel, figures: Mapping[str, StreamFigures], home: str) -> SitedPlan:
    """The plan that brings all streams to the site of one of them and joins them there."""
    return SitedPlan(tuple(_gathered_sequence(model, figures, head, home) for head in model.topology.streams))


def _gathered_sequence(
    model: SiteCostModel, figures: Mapping[str, StreamFigures], head: str, home: str
) -> JoinSequence:
    flow = model.start(head, figures[head])
    rest = [stream for stream in model.topology.streams if stream != head]
    order, placements = [], []
    while rest:
        placement = SOURCE if flow.site == model.topology.site_of[home] else DESTINATION
        steps = [(model.step(flow, stream, figures[stream]).priority, stream) for stream in rest]
        stream = min(steps)[1] if placement == SOURCE else home
        flow = model.join(flow, stream, figures[stream], placement)
        rest.remove(stream)
        order.append(stream)
        placements.append(placement)
    return JoinSequence(head, tuple(order), tuple(placements))


def shared_plan(model: SiteCostModel, figures: Mapping[str, StreamFigures]) -> SitedPlan:
    """A plan that costs little if sequences share; of more than six streams, the best to begin from."""
    costs, streams = SharedCosts(model, figures), model.topology.streams
    homes = {model.topology.site_of[stream]: stream for stream in reversed(streams)}.values()
    plans = [greedy_plan(model, figures), *(gathered_plan(model, figures, home) for home in homes)]
    if len(streams) <= MAX_STREAMS:
        plans = [costs.improve(plan) for plan in (*plans, optimal_plan(model, figures))]
    return min(plans, key=costs.plan_cost)


def _added(items: list[CostItem], done: frozenset[SharedResource]) -> float:
    """What items cost, less those that are done anyway. No join has the same one twice."""
    fresh = {what: cost for what, cost in items if what is not None and what not in done}
    return sum(fresh.values()) + sum(cost for what, cost in items if what is None)
