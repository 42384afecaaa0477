"""What sites tell each other, as frozen values.

Rows are in none of them: ``Subscribed``, ``Portion`` and ``Rows`` name the epochs whose rows go with them.
The rows of a stream and an epoch never change, so whoever delivers a message can add them.
"""

from __future__ import annotations

import msgspec

from midstream.plan.site_operators import Operators
from midstream.plan.sited_plan import JoinSequence, Placement
from midstream.query.network import Site
from midstream.sites.cost import FlowFigures, Priority, StreamFigures

SwitchId = str
"""The site that began a switch, and how many it has begun."""


class FiguresReport(msgspec.Struct, frozen=True, tag="report"):
    """To the coordinator: a stream has other figures."""

    stream: str
    figures: StreamFigures


class Changed(msgspec.Struct, frozen=True, tag="changed"):
    """To the site of a head: a stream of its sequence, perhaps the head itself, has other figures."""

    head: str
    stream: str
    figures: StreamFigures


class Seek(msgspec.Struct, frozen=True, tag="seek"):
    """Along a sequence: does the changed stream now win over the one that is asked?"""

    sequence: JoinSequence
    position: int
    """Of the stream that is asked."""
    flow: FlowFigures
    """What the head has found before this position."""
    stream: str
    """The changed stream."""
    figures: StreamFigures


class StreamCandidate(msgspec.Struct, frozen=True):
    """The stream that costs least of those that were asked."""

    stream: str
    priority: Priority
    placement: Placement
    figures: StreamFigures


class Select(msgspec.Struct, frozen=True, tag="select"):
    """Along the rest of a sequence: which stream costs least at a position?"""

    sequence: JoinSequence
    """As it is decided before the position."""
    position: int
    asked: int
    """The position of the stream that is asked."""
    flow: FlowFigures
    best: StreamCandidate | None
    """Of those asked before; None for the first one."""


class SequencesDecided(msgspec.Struct, frozen=True, tag="decided"):
    """To who has asked: sequences as they should be now."""

    sequences: tuple[JoinSequence, ...]


class Prepare(msgspec.Struct, frozen=True, tag="prepare"):
    """To an affected site: what it is to do from the switch on, for the heads whose sequences change."""

    switch: SwitchId
    affected: tuple[Site, ...]
    operators: dict[str, Operators]


class LocalReady(msgspec.Struct, frozen=True, tag="local-ready"):
    """To all affected sites: the sender has all windows that it needs."""

    switch: SwitchId


class GlobalReady(msgspec.Struct, frozen=True, tag="global-ready"):
    """To all affected sites: the sender knows that all have their windows, and could switch at an epoch."""

    switch: SwitchId
    epoch: int


class Subscribe(msgspec.Struct, frozen=True, tag="subscribe"):
    """To the site of a stream: the sender keeps a copy of its window from now on."""

    stream: str
    first: int
    """The first epoch whose rows it needs."""
    held: tuple[int, ...]
    """Those that it still has from earlier."""


class Subscribed(msgspec.Struct, frozen=True, tag="subscribed"):
    """The answer: rows from this epoch on come by themselves, those of some earlier ones are here."""

    stream: str
    starts: int
    epochs: tuple[int, ...]
    """The newest of those that the other site lacks; it fetches the others."""
    oldest: int
    """The first epoch whose rows have not expired."""


class Fetch(msgspec.Struct, frozen=True, tag="fetch"):
    """To the site of a stream: the sender lacks the rows of these epochs."""

    stream: str
    epochs: tuple[int, ...]


class Portion(msgspec.Struct, frozen=True, tag="portion"):
    """The answer: the rows of those epochs that have not expired."""

    stream: str
    epochs: tuple[int, ...]
    oldest: int


class Rows(msgspec.Struct, frozen=True, tag="rows"):
    """To a site with a copy: new rows of a stream."""

    stream: str
    epoch: int


class Unsubscribe(msgspec.Struct, frozen=True, tag="unsubscribe"):
    """To the site of a stream: the sender needs no more rows."""

    stream: str


Modification = FiguresReport | Changed | Seek | Select | SequencesDecided
"""Finding another plan."""
Synchronisation = Prepare | LocalReady | GlobalReady
"""Changing to it together."""
WindowMessage = Subscribe | Subscribed | Fetch | Portion | Rows | Unsubscribe
"""Copies of windows."""
Message = (
    FiguresReport | Changed | Seek | Select | SequencesDecided | Prepare | LocalReady | GlobalReady
    | Subscribe | Subscribed | Fetch | Portion | Rows | Unsubscribe
)  # fmt: skip
Outgoing = tuple[Site, Message]
"""A message, and the site it is for."""
