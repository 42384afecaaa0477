"""Sites, drawn at random: where streams live, and plans for them."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace

from midstream.memory.balance import BalanceSettings
from midstream.migration.request import MigrationRequest
from midstream.plan.sited_plan import JoinSequence
from midstream.plan.tree import Plan, sited
from midstream.protocol.settings import Settings
from midstream.query.network import Network, read_link
from midstream.query.query import Query
from midstream.query.topology import Topology, build_topology
from midstream.sites.planner import PLANNERS, UPDATES, SitePolicy
from midstream.testing.draw_plans import draw_request

_SITES = ("x", "y", "z-1")


def draw_topology(rng: random.Random, names: Sequence[str]) -> Topology:
    """Several streams at a site, streams without one, a sink of its own, sites with several partitions."""
    homes = {name: rng.choice(_SITES) for name in names if rng.random() < 0.9}
    sink = rng.choice((*_SITES, "sink"))
    partitions = {site: 2 for site in (*homes.values(), sink) if rng.random() < 0.2}
    network = Network(
        default=read_link("50 ms", "1 mbit"),
        links={frozenset(_SITES[:2]): read_link("1 ms", rng.choice(("10 kbit", "1 gbit")))},
    )
    return build_topology(names, homes, network, sink, partitions)


def draw_sited_plan(rng: random.Random, names: Sequence[str]) -> Plan:
    """Any order and placements for each stream."""
    return sited(
        [
            JoinSequence(
                head,
                tuple(rng.sample([name for name in names if name != head], len(names) - 1)),
                tuple(rng.choice((0, 1)) for _ in names[1:]),
            )
            for head in names
        ]
    )


def at_sites(
    rng: random.Random, query: Query, settings: Settings, requests: Mapping[int, MigrationRequest]
) -> tuple[Query, Plan, Settings, dict[int, MigrationRequest]]:
    """The query with sites, a plan for it, settings that sites allow, and requests for other such plans."""
    query = replace(query, topology=draw_topology(rng, query.names))
    policy = SitePolicy(rng.choice(PLANNERS), rng.choice(UPDATES), rng.choice((0.05, 0.2)))
    settings = replace(
        settings,
        groups=max(2, settings.groups),
        memory=None,
        balance=BalanceSettings(),
        shares=(),
        sites=policy,
    )
    asked = {e: draw_request(rng, query, draw_sited_plan(rng, query.names)) for e in requests}
    return query, draw_sited_plan(rng, query.names), settings, asked
