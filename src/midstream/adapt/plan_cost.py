"""What a plan costs: the cost model, added up over its layout."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import NamedTuple

from midstream.adapt.cost import CostModel, unplaced_factor
from midstream.adapt.estimate import Estimator, Streams
from midstream.plan.build_layout import build_layout
from midstream.plan.layout import Fragment, Layout, Node
from midstream.plan.tree import Plan
from midstream.state.costs import Cost


class ProbeStep(NamedTuple):
    """Rows that begin as new rows of one input of a node search the state of another input."""

    new: Streams
    """The streams of the input in which the rows are new."""
    probing: Streams
    """The streams that the rows have components of so far."""
    probed: Streams

    @property
    def matched(self) -> Streams:
        """The streams of the rows that come out."""
        return self.probing | self.probed


def plan_cost(plan: Plan, estimator: Estimator, partitions: int) -> float:
    """What a plan costs, in units per second."""
    return layout_cost(build_layout(estimator.query, plan), estimator, partitions)


def layout_cost(layout: Layout, estimator: Estimator, partitions: int) -> float:
    """The same of a plan that has been laid out."""
    return cost_of(layout, estimator, partitions).units(CostModel(estimator).weights)


def cost_of(layout: Layout, estimator: Estimator, partitions: int) -> Cost:
    """The work of a plan that has been laid out, per second and by kind."""
    return sum(cost_terms(layout, estimator, partitions).values(), Cost())


def cost_terms(layout: Layout, estimator: Estimator, partitions: int) -> dict[Streams, Cost]:
    """The cost of a plan, by the join whose rate it is proportional to; by none, what the stages cost."""
    model = CostModel(estimator)
    terms = {frozenset[str](): model.additional_stage() * (layout.stages - 1)}
    for fragment in layout.fragments:
        factor = unplaced_factor(partitions, is_placed=bool(fragment.key))
        for streams, cost in _parts(fragment, model):
            terms[streams] = terms.get(streams, Cost()) + cost * factor
    return terms


def _parts(fragment: Fragment, model: CostModel) -> Iterator[tuple[Streams, Cost]]:
    for step in chain.from_iterable(probe_steps(node) for node in fragment.nodes):
        probing, matched = (
            model.estimator.rate_by_newest(streams) * len(step.new)
            for streams in (step.probing, step.matched)
        )
        yield step.probing, model.probe_step(step.probed, probing_rows=probing, matched_rows=0.0)
        yield step.matched, model.probe_step(step.probed, probing_rows=0.0, matched_rows=matched)
    for state, keys in fragment.arrangements.items():
        streams = frozenset(state.streams)
        yield streams, model.index(streams) * len(keys)
    for fragment_input in fragment.inputs:
        streams = frozenset(fragment_input.streams)
        yield streams, model.fragment_input(streams)
        if fragment_input.is_stream:
            yield streams, model.forwarding(streams) * fragment.stage


def probe_steps(node: Node) -> Iterator[ProbeStep]:
    """All probe steps of a node, input by input."""
    return chain.from_iterable(input_steps(node, i) for i in range(len(node.inputs)))


def input_steps(node: Node, number: int) -> Iterator[ProbeStep]:
    """The probe steps of the new rows of one input."""
    new = probing = frozenset(node.inputs[number].streams)
    for probe in node.probes[number]:
        step = ProbeStep(new, probing, frozenset(probe.input.streams))
        yield step
        probing = step.matched
