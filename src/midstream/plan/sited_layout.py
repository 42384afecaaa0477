"""The layout of a plan whose streams live at sites: a fragment for each site and round.

New rows of a stream, the *head*, go along its sequence. As long as placements leave them where they are, they
probe one window after the other in one node. When they go to another site, they leave their fragment as rows
of any fragment do, and enter one of the next stage: a *round*. So the number of stages is the largest number
of times that some head changes its site, and one more.

A site keeps the windows that are probed there, and those of streams that live there. They come straight from
their streams. The fragment of the first round stores them; those of later rounds search what is stored, and
have the new rows as inputs too, if only because these have to be searched by heads that come after them.

The inputs of a node are in the order of the streams, with the rows of the head in the place of the head. So
the delta rule holds as in any node: a head probes the new rows of streams before it, and not of those after.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import groupby

from midstream.errors import PlanError
from midstream.plan.layout import Fragment, FragmentInput, Key, Layout, Node, Probe, state_of
from midstream.plan.payload_columns import payload_columns
from midstream.plan.placement import common_classes
from midstream.plan.probe import make_probe
from midstream.plan.sited_plan import JoinSequence
from midstream.plan.state_id import StateId
from midstream.plan.tree import Plan
from midstream.query.network import Site
from midstream.query.query import Query
from midstream.query.topology import Topology


def check_kind(query: Query, plan: Plan) -> None:
    """Refuse a tree for streams with sites, and sequences for streams without."""
    if (query.topology is not None) == bool(plan.sequences):
        return
    if plan.sequences:
        raise PlanError(
            "a plan with sequences must be for streams that live at sites",
            got=f"{str(plan)!r} for streams without sites",
            hint="name sites with .stream(..., site=...), or write a plan as names and parentheses",
        )
    raise PlanError(
        "a plan of streams that live at sites must have a sequence for each",
        got=repr(str(plan)),
        hint="write them as explain() shows them: 'a: [b, c], [0, 1]; b: [a, c], [1, 1]; c: [b, a], [0, 0]'",
    )


def window_at(stream: str, site: Site) -> StateId:
    """The window of a stream, or a copy of it, at a site."""
    return StateId.of((stream,), site=site)


def build_sited_layout(query: Query, plan: Plan, topology: Topology) -> Layout:
    """The fragments of all sites and rounds, and where results leave."""
    key = tuple(sorted(common_classes(query.classes_of(frozenset((name,))) for name in query.names)))
    builder = _Builder(query, topology, key)
    for stream, home in topology.site_of.items():
        builder.fragment(home, 0).add_window(window_at(stream, home))
    last_round = max(builder.add_sequence(sequence) for sequence in plan.sequences)
    builder.fragment(topology.sink, last_round)
    numbered = sorted(builder.parts, key=lambda at: (at[1], topology.sites.index(at[0])))
    fragments = [builder.build(number, at) for number, at in enumerate(numbered)]
    sink = fragments[numbered.index((topology.sink, last_round))]
    return Layout(plan, tuple(fragments), sink)


@dataclass
class _Part:
    """The fragment of a site in one round, as far as it is known."""

    inputs: dict[StateId, None] = field(default_factory=dict)
    nodes: list[Node] = field(default_factory=list)
    windows: dict[StateId, dict[Key, None]] = field(default_factory=dict)
    """In the first round: the windows of the site, each with the keys by which it is searched."""

    def add_window(self, window: StateId) -> None:
        self.inputs[window] = None
        self.windows.setdefault(window, {})


@dataclass
class _Builder:
    query: Query
    topology: Topology
    key: Key
    parts: dict[tuple[Site, int], _Part] = field(default_factory=dict)

    def fragment(self, site: Site, round_: int) -> _Part:
        return self.parts.setdefault((site, round_), _Part())

    def add_sequence(self, sequence: JoinSequence) -> int:
        """Add the nodes of a head; gives the round in which its results are where the sink is."""
        probed_at = zip(sequence.locations(self.topology.site_of)[1:], sequence.order, strict=True)
        rounds: list[tuple[Site, list[str]]] = [
            (site, [stream for _, stream in probed])
            for site, probed in groupby(probed_at, key=lambda probed: probed[0])
        ]
        joined = frozenset((sequence.head,))
        residuals = list(range(len(self.query.residuals)))
        entering = window_at(sequence.head, rounds[0][0])
        for number, (site, streams) in enumerate(rounds):
            is_last = number == len(rounds) - 1
            reached = joined.union(streams)
            leaving = state_of(self.query, reached)
            if not is_last:
                leaving = StateId.of(leaving.streams, head=sequence.head, site=rounds[number + 1][0])
            self._add_node(sequence.head, entering, leaving, site, number, streams, residuals)
            residuals = [i for i in residuals if not self.query.residuals[i].streams <= reached]
            joined, entering = reached, leaving
        # Results that are aggregated go no further: partial aggregates of them do.
        goes_on_to_sink = self.query.aggregation is None and rounds[-1][0] != self.topology.sink
        return len(rounds) - 1 + goes_on_to_sink

    def _add_node(  # what a head does at a site
        self,
        head: str,
        entering: StateId,
        leaving: StateId,
        site: Site,
        round_: int,
        streams: Iterable[str],
        residuals: Iterable[int],
    ) -> None:
        part, keeper = self.fragment(site, round_), self.fragment(site, 0)
        probes: list[Probe] = []
        joined, unchecked = frozenset(entering.streams), list(residuals)
        for stream in streams:
            probe = make_probe(self.query, joined, window_at(stream, site), self.key, unchecked)
            unchecked = [i for i in unchecked if i not in probe.residuals]
            joined = joined.union((stream,))
            probes.append(probe)
            keeper.add_window(probe.input)
            keeper.windows[probe.input][probe.key] = None
            part.inputs[probe.input] = None
        part.inputs[entering] = None
        windows = {probe.input.streams[0]: probe.input for probe in probes}
        in_order = {name: windows.get(name) for name in self.query.names} | {head: entering}
        inputs = tuple(state for state in in_order.values() if state is not None)
        orders = tuple(tuple(probes) if state == entering else () for state in inputs)
        part.nodes.append(Node(leaving, inputs, orders))

    def build(self, number: int, at: tuple[Site, int]) -> Fragment:
        (site, round_), part = at, self.parts[at]
        homes = {window_at(stream, site) for stream in self.topology.streams_at(site)}
        return Fragment(
            id=number,
            key=self.key,
            stage=round_,
            inputs=tuple(FragmentInput(s, payload_columns(self.query, s.streams)) for s in part.inputs),
            nodes=tuple(part.nodes),
            site=site,
            stored_windows=tuple(
                (window, tuple(keys) or (self.key,)) for window, keys in part.windows.items()
            ),
            counted_inputs=frozenset(homes) if round_ == 0 else frozenset(),
        )
