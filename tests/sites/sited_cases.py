"""Random sites, streams and changes of them, as the tests of this package draw them."""

from __future__ import annotations

from random import Random

from midstream.query.network import Link, Network
from midstream.query.topology import Topology
from midstream.sites.cost import SiteCostModel, StreamFigures

PAPER_LINK = Link(latency=0.005, bytes_per_second=128_000.0)
"""Section 5: 1024 kbps, 5 ms."""


def paper_model(count: int, sink: str = "N0", link: Link = PAPER_LINK) -> SiteCostModel:
    """S1 at N1, S2 at N2, ...; windows of 500 ms."""
    names = [f"S{i}" for i in range(1, count + 1)]
    topology = Topology(
        site_of={name: f"N{name[1:]}" for name in names}, sink=sink, network=Network(default=link)
    )
    return SiteCostModel(
        topology=topology, windows=dict.fromkeys(names, 0.5), probe_seconds=1e-6, update_seconds=1e-6
    )


def random_figures(rng: Random) -> StreamFigures:
    return StreamFigures(
        rng.choice([0.0, 10.0, 100.0, rng.uniform(20, 300)]),
        rng.choice([0.01, rng.uniform(0.001, 0.05)]),
        rng.choice([50.0, 150.0, 400.0]),
    )


def random_model(rng: Random, count: int) -> SiteCostModel:
    """Any topology: several streams at a site, sites without streams, links that differ, also chains."""
    streams = [f"S{i}" for i in range(1, count + 1)]
    sites = [f"N{i}" for i in range(1, count + 1)]
    few = sites[: rng.randint(1, count)] if rng.random() < 0.5 else sites
    homes = sites if rng.random() < 0.5 else [rng.choice(few) for _ in streams]
    pairs = {
        frozenset(rng.sample(sites, 2)): Link(
            latency=rng.choice([0.0, 0.01, 0.1]), bytes_per_second=rng.choice([1e4, 1e6])
        )
        for _ in range(rng.randint(0, count))
    }
    network = Network(default=PAPER_LINK, links=pairs if rng.random() < 0.5 else {})
    sink = rng.choice([*sites, "N0"])
    topology = Topology(site_of=dict(zip(streams, homes, strict=True)), sink=sink, network=network)
    chain = {
        name: frozenset(streams[max(0, i - 1) : i] + streams[i + 1 : i + 2]) for i, name in enumerate(streams)
    }
    return SiteCostModel(
        topology=topology,
        windows={name: rng.choice([0.5, 1.0]) for name in streams},
        probe_seconds=1e-6,
        update_seconds=1e-6,
        neighbours=chain if rng.random() < 0.3 else None,
    )


def random_change(rng: Random, figures: dict[str, StreamFigures]) -> tuple[str, StreamFigures]:
    """Other figures for one stream: one of the three, or all."""
    stream = rng.choice(list(figures))
    old, other = figures[stream], random_figures(rng)
    what = rng.choice(["rate", "selectivity", "row_bytes", "all"])
    if what == "all":
        return stream, other
    values = {name: getattr(other if name == what else old, name) for name in StreamFigures.__struct_fields__}
    return stream, StreamFigures(**values)
