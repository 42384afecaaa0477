"""What a user says of sites: where streams and the sink live, what the links are, how many partitions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from midstream.errors import QueryError, show_value
from midstream.query.network import Link, Network, Site, read_link
from midstream.query.topology import Topology, build_topology, check_site

DEFAULT_LINK = read_link("50 ms", "100 mbit")
"""The link between any two sites of which nothing is said."""
_LINK_HINT = (
    "write link('paris', 'oregon', latency='80 ms', bandwidth='50 mbit'); without sites it is for all pairs"
)


@dataclass(frozen=True)
class SiteDescription:
    """All that was said so far; nothing if streams have no sites."""

    of_streams: Mapping[str, Site] = field(default_factory=dict)
    sink: Site | None = None
    everywhere: Link | None = None
    links: Mapping[frozenset[Site], Link] = field(default_factory=dict)
    partitions: Mapping[Site, int] = field(default_factory=dict)

    def with_stream(self, stream: str, site: object) -> SiteDescription:
        """A stream lives at a site."""
        return replace(self, of_streams={**self.of_streams, stream: check_site(site)})

    def with_sink(self, site: object) -> SiteDescription:
        """Results are wanted at a site."""
        return replace(self, sink=check_site(site))

    def with_site(self, site: object, partitions: object) -> SiteDescription:
        """A site has so many engine partitions."""
        if not isinstance(partitions, int) or partitions is True or partitions < 1:
            must = "the partitions of a site must be a whole number from 1"
            raise QueryError(must, got=show_value(partitions), hint="write site('paris', partitions=4)")
        return replace(self, partitions={**self.partitions, check_site(site): partitions})

    def with_link(self, sites: tuple[object, ...], latency: str, bandwidth: str) -> SiteDescription:
        """The link between two sites; without sites, that between all pairs of which nothing else is said."""
        link = read_link(latency, bandwidth)
        if not sites:
            return replace(self, everywhere=link)
        pair = frozenset(check_site(site) for site in sites)
        if len(sites) != 2 or len(pair) != 2:
            got = " and ".join(map(show_value, sites))
            raise QueryError("a link must be between two sites, or all", got=got, hint=_LINK_HINT)
        return replace(self, links={**self.links, pair: link})

    def topology(self, streams: Iterable[str]) -> Topology | None:
        """Where the streams live; None if nothing was said of sites."""
        if self == SiteDescription():
            return None
        names = tuple(streams)
        network = Network(default=self.everywhere or DEFAULT_LINK, links=dict(self.links))
        topology = build_topology(names, self.of_streams, network, self.sink, self.partitions)
        unused = [site for site in self.partitions if site not in topology.partitions_of_sites]
        if unused:
            raise QueryError(
                "a site that has partitions must be one of a stream, or of the sink",
                got=show_value(unused[0]),
                hint=f"these sites are {', '.join(topology.partitions_of_sites)}",
            )
        return topology
