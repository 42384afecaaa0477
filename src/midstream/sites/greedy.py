"""The greedy plan (algorithm 1), and the invariant that it keeps (equation 4).

Each sequence takes, one after the other, the stream whose join costs least now. If there is one with a
predicate on what has been joined, only such streams are looked at: the others make all pairs. On equal costs
the stream that the query names first is taken, so whoever has the same figures finds the same plan.
"""

from __future__ import annotations

from collections.abc import Mapping

from midstream.plan.sited_plan import JoinSequence, SitedPlan
from midstream.sites.cost import SiteCostModel, StreamFigures


def greedy_sequence(model: SiteCostModel, figures: Mapping[str, StreamFigures], head: str) -> JoinSequence:
    """The sequence of one head."""
    flow = model.start(head, figures[head])
    rest = [stream for stream in model.topology.site_of if stream != head]
    order, placements = [], []
    while rest:
        steps = [model.step(flow, stream, figures[stream]) for stream in rest]
        # The first of those that cost the same: the streams that are left are in the order of the query.
        best = min(range(len(rest)), key=lambda i: steps[i].priority)
        stream = rest.pop(best)
        order.append(stream)
        placements.append(steps[best].placement)
        flow = model.join(flow, stream, figures[stream], steps[best].placement)
    return JoinSequence(head, tuple(order), tuple(placements))


def greedy_plan(model: SiteCostModel, figures: Mapping[str, StreamFigures]) -> SitedPlan:
    """The sequences of all heads."""
    return SitedPlan(tuple(greedy_sequence(model, figures, head) for head in model.topology.site_of))


def keeps_invariant(
    model: SiteCostModel, figures: Mapping[str, StreamFigures], sequence: JoinSequence
) -> bool:
    """Whether each join of a sequence costs no more than any of the later ones would in its place."""
    flow = model.start(sequence.head, figures[sequence.head])
    for position, (stream, placement) in enumerate(zip(sequence.order, sequence.placements, strict=True)):
        own = model.step(flow, stream, figures[stream])
        later = (model.step(flow, other, figures[other]).priority for other in sequence.order[position:])
        if own.placement != placement or own.priority > min(later):
            return False
        flow = model.join(flow, stream, figures[stream], placement)
    return True
