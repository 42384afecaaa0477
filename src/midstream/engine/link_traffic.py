"""What goes over the links between sites: the messages between partitions of different sites."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import msgspec

from midstream.query.network import Site

LinkName = str
"""The sites of a link in one direction, such as ``frankfurt->oregon``."""


class LinkTraffic(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What has gone over a link in one direction."""

    bytes: int = 0
    """What the messages weigh as they are sent."""
    messages: int = 0
    rows: int = 0

    def __add__(self, other: LinkTraffic) -> LinkTraffic:
        return LinkTraffic(self.bytes + other.bytes, self.messages + other.messages, self.rows + other.rows)


@dataclass(slots=True)
class LinkCounter:
    """Counts what is sent from one site to others."""

    source: Site
    links: dict[LinkName, LinkTraffic] = field(default_factory=dict)

    def count(self, target: Site, size: int, rows: int) -> None:
        """A message to a site; what stays at a site goes over no link."""
        if target != self.source:
            name = link_name(self.source, target)
            self.links[name] = self.links.get(name, LinkTraffic()) + LinkTraffic(size, 1, rows)


def link_name(source: Site, target: Site) -> LinkName:
    """The name of a link, from one site to another."""
    return f"{source}->{target}"


def sites_of_link(name: LinkName) -> tuple[Site, Site]:
    """The two sites of a link, from its name."""
    source, _, target = name.partition("->")
    return source, target


def add_links(counts: Iterable[LinkTraffic]) -> LinkTraffic:
    """Several counts of one link as one."""
    return sum(counts, LinkTraffic())
