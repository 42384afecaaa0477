"""The links between sites, and how long it takes to send something over one: T(x) of the paper on sites.

A link has a latency and a bandwidth, the same in both directions. All pairs of sites have the default link
unless another one is given. What stays at a site takes no time.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from midstream.errors import QueryError, show_value
from midstream.values import MICROS_PER_SECOND, duration

Site = str
"""The name of a site."""

BITS_PER_BYTE = 8
_UNITS = {"bit": 1, "kbit": 1_000, "mbit": 1_000_000, "gbit": 1_000_000_000}
_BANDWIDTH = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([kmg]?bit)\s*\Z", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """What is between two sites."""

    latency: float
    """Seconds until the first byte arrives: c_l."""
    bytes_per_second: float
    """c_r."""

    def transfer_seconds(self, size: float) -> float:
        """T(x): how long some bytes take."""
        return self.latency + size / self.bytes_per_second


def read_link(latency: str, bandwidth: str) -> Link:
    """A link as users describe it.

    >>> read_link("80 ms", "50 mbit")
    Link(latency=0.08, bytes_per_second=6250000.0)
    """
    found = _BANDWIDTH.match(bandwidth) if isinstance(bandwidth, str) else None
    bits = float(found[1]) * _UNITS[found[2].lower()] if found else 0.0
    if not bits:
        raise QueryError(
            "the bandwidth of a link must be bits per second, more than 0",
            got=show_value(bandwidth),
            hint="write a number and bit, kbit, mbit or gbit, e.g. '50 mbit'",
        )
    seconds = duration(latency, "the latency of a link") / MICROS_PER_SECOND
    return Link(latency=seconds, bytes_per_second=bits / BITS_PER_BYTE)


@dataclass(frozen=True, slots=True)
class Network:
    """The links between all sites."""

    default: Link
    links: Mapping[frozenset[Site], Link] = field(default_factory=dict)
    """Those of particular pairs of sites."""

    def link(self, source: Site, target: Site) -> Link:
        """What is between two different sites."""
        return self.links.get(frozenset((source, target)), self.default) if self.links else self.default

    def transfer_seconds(self, source: Site, target: Site, size: float) -> float:
        """How long it takes to send some bytes from one site to another; nothing, if they are the same."""
        return 0.0 if source == target else self.link(source, target).transfer_seconds(size)
