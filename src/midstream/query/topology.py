"""Where the streams of a query live: the site of each stream, the site of the sink, and the links."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from midstream.errors import QueryError, show_value
from midstream.query.network import Network, Site

_NAME = re.compile(r"\w[\w.-]*\Z")


@dataclass(frozen=True, slots=True, kw_only=True)
class Topology:
    """The sites of a query. Several streams may live at one, and sites may have none."""

    site_of: Mapping[str, Site]
    """The site of each stream, in the order of the query: on equal costs, the first stream comes first."""
    sink: Site
    """The site that results are sent to: N_0."""
    network: Network
    partitions: Mapping[Site, int] = field(default_factory=dict)
    """How many engine partitions sites have, those that have more than one."""

    def __hash__(self) -> int:
        """Layouts of queries are kept, and a query is found by its hash."""
        return hash((tuple(self.site_of.items()), self.sink))

    @property
    def streams(self) -> tuple[str, ...]:
        """All streams, in the order of the query."""
        return tuple(self.site_of)

    @property
    def sites(self) -> tuple[Site, ...]:
        """All sites: those of streams, that of the sink, those that have a link of their own."""
        linked = (site for pair in self.network.links for site in sorted(pair))
        return tuple(dict.fromkeys((*self.site_of.values(), self.sink, *linked)))

    @property
    def partitions_of_sites(self) -> dict[Site, int]:
        """How many engine partitions each site has where rows may come: those of streams, and the sink."""
        used = dict.fromkeys((*self.site_of.values(), self.sink))
        return {site: self.partitions.get(site, 1) for site in used}

    def streams_at(self, site: Site) -> tuple[str, ...]:
        """The streams that live at a site."""
        return tuple(stream for stream, home in self.site_of.items() if home == site)


def build_topology(
    streams: Iterable[str],
    sites: Mapping[str, Site],
    network: Network,
    sink: Site | None = None,
    partitions: Mapping[Site, int] | None = None,
) -> Topology:
    """The sites of streams. A stream without a site lives where the sink is, and so does the sink by default.

    Without a sink and with streams that have no site, there is no place that they could be at.
    """
    streams = tuple(streams)
    if unknown := [name for name in sites if name not in streams]:
        raise QueryError(
            f"sites must be those of the streams {', '.join(streams)}", got=f"a site of {unknown[0]!r}"
        )
    without = [name for name in streams if name not in sites]
    if sink is None and without:
        raise QueryError(
            "every stream must have a site, or the sink must have one",
            got=f"neither one for {without[0]!r} nor one for the sink",
            hint="name the site of the sink: streams without a site live there",
        )
    home = sink if sink is not None else sites[streams[0]]
    for site in (*sites.values(), home, *(partitions or ())):
        check_site(site)
    return Topology(
        site_of={name: sites.get(name, home) for name in streams},
        sink=home,
        network=network,
        partitions=dict(partitions or {}),
    )


def check_site(site: object) -> Site:
    """The name of a site, if it can be one."""
    if not isinstance(site, str) or not _NAME.match(site):
        raise QueryError(
            "the name of a site must be letters, digits, underscores, dots and hyphens",
            got=show_value(site),
            hint="begin with a letter or a digit, e.g. 'eu-west-1'",
        )
    return site
