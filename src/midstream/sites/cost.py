"""What a plan costs per second of event time, by equations 1 to 3 of the paper on sites, in its symbols.

The cost of one join of a sequence is sending rows (the window's new rows to the copy, or what was found so
far to the window's site), storing the stream's new rows in the window, and probing the window row by row: the
paper has nested loops. The estimates of what a join finds use one selectivity per stream; streams
without a predicate between them make all pairs.

The cost is that of each sequence by itself: a copy that two sequences share is counted twice.
``testing/sited_execution.py`` counts what is sent in fact.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import msgspec

from midstream.plan.sited_plan import DESTINATION, SOURCE, JoinSequence, Placement, SitedPlan
from midstream.query.network import Site
from midstream.query.topology import Topology

Priority = tuple[bool, float]
"""Of a join, the lowest first: whether it makes all pairs, then what it costs."""


class StreamFigures(msgspec.Struct, frozen=True):
    """What is known of a stream."""

    rate: float
    """Rows per second: r."""
    selectivity: float
    """The share of its rows that have the same key: f."""
    row_bytes: float
    """t."""


class FlowFigures(msgspec.Struct, frozen=True):
    """What is known of the rows that a head has found after some joins."""

    streams: tuple[str, ...]
    """Their components, the head first."""
    rate: float
    selectivity: float
    row_bytes: float
    site: Site
    """Where they are."""


class CheapestJoin(NamedTuple):
    """One join of a sequence, where it costs less."""

    priority: Priority
    placement: Placement


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteCostModel:
    """What joins cost between these sites."""

    topology: Topology
    windows: Mapping[str, float]
    """The window of each stream in seconds."""
    probe_seconds: float
    """To compare with one row of a window: c_p."""
    update_seconds: float
    """To store a row in a window, and to remove it: c_u."""
    neighbours: Mapping[str, frozenset[str]] | None = None
    """The streams that each has a predicate with; None if all have one with all others, a clique."""

    def start(self, head: str, figures: StreamFigures) -> FlowFigures:
        """The new rows of a head, before they probe anything."""
        site = self.topology.site_of[head]
        return FlowFigures((head,), figures.rate, figures.selectivity, figures.row_bytes, site)

    def costs(self, flow: FlowFigures, stream: str, figures: StreamFigures) -> tuple[float, float]:
        """The cost of the next join at the source (equation 1) and at the destination (equation 2)."""
        network, home = self.topology.network, self.topology.site_of[stream]
        rate = figures.rate
        computing = rate * self.update_seconds
        computing += flow.rate * self.probe_seconds * (rate * self.windows[stream])
        return (
            network.transfer_seconds(home, flow.site, rate * figures.row_bytes) + computing,
            network.transfer_seconds(flow.site, home, flow.rate * flow.row_bytes) + computing,
        )

    def step(self, flow: FlowFigures, stream: str, figures: StreamFigures) -> CheapestJoin:
        """The next join where it costs less (equation 3)."""
        at_source, at_destination = self.costs(flow, stream, figures)
        all_pairs = self._makes_all_pairs(flow, stream)
        if at_source <= at_destination:
            return CheapestJoin((all_pairs, at_source), SOURCE)
        return CheapestJoin((all_pairs, at_destination), DESTINATION)

    def join(
        self, flow: FlowFigures, stream: str, figures: StreamFigures, placement: Placement
    ) -> FlowFigures:
        """What the rows have become after the join."""
        matching = min(flow.selectivity, figures.selectivity)
        if self._makes_all_pairs(flow, stream):
            matching = 1.0
        return FlowFigures(
            (*flow.streams, stream),
            flow.rate * matching * (figures.rate * self.windows[stream]),
            max(flow.selectivity, figures.selectivity),
            flow.row_bytes + figures.row_bytes,
            flow.site if placement == SOURCE else self.topology.site_of[stream],
        )

    def _makes_all_pairs(self, flow: FlowFigures, stream: str) -> bool:
        return self.neighbours is not None and self.neighbours[stream].isdisjoint(flow.streams)

    def sequence_cost(self, sequence: JoinSequence, figures: Mapping[str, StreamFigures]) -> float:
        """The cost of a sequence: the sum of its joins, each where the sequence has it."""
        flow, total = self.start(sequence.head, figures[sequence.head]), 0.0
        for stream, placement in zip(sequence.order, sequence.placements, strict=True):
            total += self.costs(flow, stream, figures[stream])[placement]
            flow = self.join(flow, stream, figures[stream], placement)
        return total

    def plan_cost(self, plan: SitedPlan, figures: Mapping[str, StreamFigures]) -> float:
        """The cost of all sequences."""
        return sum(self.sequence_cost(sequence, figures) for sequence in plan.sequences)


def neighbours_of(streams: Iterable[str], pairs: Iterable[tuple[str, str]]) -> dict[str, frozenset[str]]:
    """The streams that each stream has a predicate with, from the pairs that have one."""
    both = [(a, b) for pair in pairs for a, b in (pair, pair[::-1])]
    return {stream: frozenset(b for a, b in both if a == stream) for stream in streams}
