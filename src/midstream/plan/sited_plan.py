"""The plan of a query with sites: for each stream an order of the others, and where each join is done.

The paper's *join execution plan* (definition 1) has a *sequence* (O_i, P_i) for each stream S_i, its
*head*: a new row of the head probes the windows of the other streams in the order O_i. The k-th probe is
done

- with placement 0 where the rows are that were found so far (*source*): a copy of the window is kept there;
- with placement 1 at the site of the stream that is probed (*destination*): the rows are sent there.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import msgspec

from midstream.errors import PlanError
from midstream.query.network import Site

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

    def __str__(self) -> str:
        return "; ".join(map(str, self.sequences))

    def sequence(self, head: str) -> JoinSequence:
        """The sequence of a head."""
        return next(sequence for sequence in self.sequences if sequence.head == head)

    def with_sequence(self, changed: JoinSequence) -> SitedPlan:
        """The plan with another sequence for one head."""
        return SitedPlan(tuple(changed if s.head == changed.head else s for s in self.sequences))


_SEQUENCE = re.compile(r"\s*(\w+)\s*:\s*\[([\w\s,]*)\]\s*,\s*\[([01\s,]*)\]\s*\Z")
_HINT = "write a sequence for each stream: 'a: [b, c], [0, 1]; b: [a, c], [1, 1]; c: [b, a], [0, 0]'"


def is_sited(text: str) -> bool:
    """Whether the text of a plan is that of one with sites."""
    return ":" in text


def parse_sequences(text: str, streams: Sequence[str]) -> tuple[JoinSequence, ...]:
    """Read the text form of a plan with sites; its sequences are in the order of the streams."""
    found: dict[str, JoinSequence] = {}
    for part in filter(str.strip, re.split(r"[;\n]", text)):
        sequence = _read_sequence(part)
        if sequence.head in found:
            raise PlanError(
                "a plan with sites must have one sequence for each stream",
                got=f"two of {sequence.head}",
                hint=_HINT,
            )
        found[sequence.head] = sequence
    if sorted(found) != sorted(streams):
        raise PlanError(
            f"a plan with sites must have a sequence for each of {', '.join(streams)}",
            got=f"those of {', '.join(found) or 'none'}",
            hint=_HINT,
        )
    for head, sequence in found.items():
        others = sorted(name for name in streams if name != head)
        if sorted(sequence.order) != others or len(sequence.placements) != len(others):
            raise PlanError(
                f"the sequence of {head} must have each of {', '.join(others)} once, with a placement",
                got=repr(str(sequence)),
                hint=_HINT,
            )
    return tuple(found[name] for name in streams)


def _read_sequence(text: str) -> JoinSequence:
    found = _SEQUENCE.match(text)
    if found is None:
        must = "a sequence must be a stream, an order of the others, and placements"
        raise PlanError(must, got=repr(text.strip()), hint=_HINT)
    head, order, placements = found.groups()
    numbers = placements.replace(",", " ").split()
    if not set(numbers) <= {str(SOURCE), str(DESTINATION)}:
        raise PlanError("a placement must be 0 or 1", got=repr(text.strip()), hint=_HINT)
    return JoinSequence(head, tuple(order.replace(",", " ").split()), tuple(map(int, numbers)))
