"""Node operator sets: what each site does for its share of a plan (definition 2).

A site joins, updates windows and ships, and nothing else. Each operator is for rows of one kind, its first
argument: when such rows come to the site, all operators for them are carried out. So the set of a site is
all that it needs to know of the plan.

The paper makes the set of a site from the placement of the join with its stream and of the joins after it
(its cases a to d, and chains of source placements). Walking along a sequence and noting what each join asks
of the two sites that it touches gives the same sets, also where several streams live at one site. What is
at the right site already is not shipped: neither a window that is needed at home, nor results where the
sink is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache

import msgspec

from midstream.plan.sited_plan import SOURCE, JoinSequence, SitedPlan
from midstream.query.network import Site
from midstream.query.topology import Topology


class Flow(msgspec.Struct, frozen=True):
    """Rows that an operator is for: a stream's own, or what a head has found up to some stream."""

    head: str
    last: str
    """The stream that was joined last; the head itself, before anything was."""

    @property
    def is_stream(self) -> bool:
        """Whether these are a stream's own rows."""
        return self.last == self.head

    def __str__(self) -> str:
        """``S2^S1`` is what S1 has found up to S2; the paper writes the head above and S2 below."""
        return self.head if self.is_stream else f"{self.last}^{self.head}"


class JoinOperator(msgspec.Struct, frozen=True, tag="join"):
    """Probe the window of a stream with rows."""

    flow: Flow
    stream: str

    def __str__(self) -> str:
        return f"join({self.flow}, {self.stream})"


class UpdateOperator(msgspec.Struct, frozen=True, tag="update"):
    """Keep the window of a stream here."""

    stream: str

    def __str__(self) -> str:
        return f"update({self.stream})"


class ShipOperator(msgspec.Struct, frozen=True, tag="ship"):
    """Send rows to another site."""

    flow: Flow
    site: Site

    def __str__(self) -> str:
        return f"ship({self.flow}, {self.site})"


SiteOperator = JoinOperator | UpdateOperator | ShipOperator
Operators = tuple[SiteOperator, ...]
"""A set, in the order in which a row meets the operators."""


def operators_of_sequence(sequence: JoinSequence, topology: Topology) -> dict[Site, Operators]:
    """What each site does for one sequence; sites that do nothing for it are left out."""
    site_of = topology.site_of
    found: dict[Site, dict[SiteOperator, None]] = {}

    def add(site: Site, *operators: SiteOperator) -> None:
        found.setdefault(site, {}).update(dict.fromkeys(operators))

    flow, location = Flow(sequence.head, sequence.head), site_of[sequence.head]
    for stream, placement in zip(sequence.order, sequence.placements, strict=True):
        home = site_of[stream]
        if placement == SOURCE:
            if home != location:
                add(home, ShipOperator(Flow(stream, stream), location))
        elif home != location:
            add(location, ShipOperator(flow, home))
            location = home
        add(location, JoinOperator(flow, stream), UpdateOperator(stream))
        flow = Flow(sequence.head, stream)
    if location != topology.sink:
        add(location, ShipOperator(flow, topology.sink))
    return {site: tuple(operators) for site, operators in found.items()}


def node_operator_sets(plan: SitedPlan, topology: Topology) -> dict[Site, Operators]:
    """What each site does for all sequences; a site without anything to do has an empty set."""
    per_sequence = [operators_of_sequence(sequence, topology) for sequence in plan.sequences]
    return {site: union(sets.get(site, ()) for sets in per_sequence) for site in topology.sites}


def union(sets: Iterable[Operators]) -> Operators:
    """All operators of some sets, each once."""
    return tuple(dict.fromkeys(operator for operators in sets for operator in operators))


@lru_cache(maxsize=4096)
def windows_in(operators: Operators) -> frozenset[str]:
    """The streams whose windows are kept where these operators are: a site asks with every message."""
    return frozenset(operator.stream for operator in operators if isinstance(operator, UpdateOperator))


def changed_sites(
    old: Mapping[Site, Operators], new: Mapping[Site, Operators], among: Iterable[Site]
) -> tuple[Site, ...]:
    """The sites whose sets differ: the affected ones."""
    return tuple(site for site in among if frozenset(old.get(site, ())) != frozenset(new.get(site, ())))
