"""The plan of a query with sites: for each stream an order of the others, and where each join is done.

The paper's *join execution plan* (definition 1) has a *sequence* (O_i, P_i) for each stream S_i, its
*head*: a new row of the head probes the windows of the other streams in the order O_i. The k-th probe is
done

- with placement 0 where the rows are that were found so far (*source*): a copy of the window is kept there;
- with placement 1 at the site of the stream that is probed (*destination*): the rows are sent there.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from midstream.sites.network import Site

Placement = int
SOURCE: Placement = 0
"""Where the probing rows are; the window is copied there."""
DESTINATION: Placement = 1
"""At the site of the probed stream; the probing rows are sent there."""


class JoinSequence(msgspec.Struct, frozen=True):
    """In which order new rows of a stream probe the others, and where; SEP_i of the paper."""

    head: str
    order: tuple[str, ...]
    placements: tuple[Placement, ...]

    def __str__(self) -> str:
        return f"{self.head}: [{', '.join(self.order)}], [{', '.join(map(str, self.placements))}]"

    def locations(self, site_of: Mapping[str, Site]) -> tuple[Site, ...]:
        """Where the rows of the head are at first, and after each probe: L_0, L_1, ..."""
        found = [site_of[self.head]]
        for stream, placement in zip(self.order, self.placements, strict=True):
            found.append(found[-1] if placement == SOURCE else site_of[stream])
        return tuple(found)


class SitedPlan(msgspec.Struct, frozen=True):
    """A sequence for each stream, in the order of the query."""

    sequences: tuple[JoinSequence, ...]

    def sequence(self, head: str) -> JoinSequence:
        """The sequence of a head."""
        return next(sequence for sequence in self.sequences if sequence.head == head)

    def with_sequence(self, changed: JoinSequence) -> SitedPlan:
        """The plan with another sequence for one head."""
        return SitedPlan(tuple(changed if s.head == changed.head else s for s in self.sequences))
