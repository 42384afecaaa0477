"""Distributed modification (algorithm 3): each site knows only its own streams and what messages carry.

When figures of a stream have changed, the site of every head is told. It sends a message along its
sequence, in two stages:

1. ``Seek``: each stream compares what it costs at its position with what the changed stream would cost there.
   The first one that loses gives its position to the changed stream; if none does, that stays where it is.
2. ``Select``: from that position on every position is decided anew, as by algorithm 1: the message passes all
   streams that are left, each compares its cost with the least so far, and the last one decides.

As printed, the algorithm begins only if the cost of the changed stream's own join changes. Two changes then
go unnoticed, and leave another plan than the greedy one: of the head's own figures, which change the costs
of all its joins (here: stage 2 from the first position), and of figures that only matter for what comes
after the stream's own join, such as its size if rows are sent to it (here: stage 2 from its position).

The flow's figures go with the message, so no site keeps figures of others that may be out of date. The
paper lets two streams swap their operators at once, and tells their neighbours; here nothing changes before
the whole sequence is decided, so there is one switch for it. Relays of one head follow each other: it has
at most one under way, and what changes meanwhile waits. Each of them leaves a sequence that is greedy for
the figures of all streams whose changes have been relayed.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from midstream.errors import InternalError
from midstream.plan.sited_plan import JoinSequence
from midstream.sites.cost import FlowFigures, SiteCostModel, StreamFigures
from midstream.sites.messages import (
    Changed,
    Message,
    Outgoing,
    Seek,
    Select,
    SequencesDecided,
    StreamCandidate,
)


class RelayState(msgspec.Struct):
    """What a site remembers of modifications."""

    figures: dict[str, StreamFigures]
    """Those of its own streams that the others know."""
    pending: dict[str, dict[str, StreamFigures]] = msgspec.field(default_factory=dict)
    """Changes that sequences of its own heads wait for."""
    busy: list[str] = msgspec.field(default_factory=list)
    """Heads with a relay or a switch under way."""


class Relay:
    """A site's part in distributed modification. It answers messages by messages."""

    def __init__(
        self, model: SiteCostModel, state: RelayState, sequences: Mapping[str, JoinSequence]
    ) -> None:
        """The sequences are those of the site's own heads, as they are now."""
        self.model = model
        self.state = state
        self.sequences = sequences
        self._rank = {stream: rank for rank, stream in enumerate(model.topology.site_of)}

    def publish(self, stream: str, figures: StreamFigures) -> list[Outgoing]:
        """One of the site's streams has other figures: every head has to know."""
        self.state.figures[stream] = figures
        site_of = self.model.topology.site_of
        return [(site, Changed(head, stream, figures)) for head, site in site_of.items()]

    def handle(self, message: Message) -> list[Outgoing]:
        """What to send in answer to a message of a relay."""
        match message:
            case Changed(head, stream, figures):
                self.state.pending.setdefault(head, {})[stream] = figures
                return self._begin(head)
            case Seek():
                return self._seek(message)
            case Select():
                return self._select(message)
        raise InternalError("a relay must have messages of a relay", got=type(message).__name__)

    def finished(self, head: str) -> list[Outgoing]:
        """A sequence is decided, and in use if it is another one: the next change may come."""
        self.state.busy.remove(head)
        return self._begin(head)

    def _begin(self, head: str) -> list[Outgoing]:
        pending = self.state.pending.get(head)
        if head in self.state.busy or not pending:
            return []
        self.state.busy.append(head)
        stream = head if head in pending else next(iter(pending))
        figures = pending.pop(stream)
        flow = self.model.start(head, self.state.figures[head])
        sequence = self.sequences[head]
        if stream == head:
            # Everything is decided anew, so whatever else has changed is taken into account.
            pending.clear()
            return self._ask(Select(sequence, 0, 0, flow, None))
        return self._ask(Seek(sequence, 0, flow, stream, figures))

    def _seek(self, message: Seek) -> list[Outgoing]:
        sequence, position, flow = message.sequence, message.position, message.flow
        stream = sequence.order[position]
        own = self.state.figures[stream]
        if stream != message.stream:
            own_priority = self.model.step(flow, stream, own).priority
            its_priority = self.model.step(flow, message.stream, message.figures).priority
            if (own_priority, self._rank[stream]) < (its_priority, self._rank[message.stream]):
                after = self.model.join(flow, stream, own, sequence.placements[position])
                return self._ask(Seek(sequence, position + 1, after, message.stream, message.figures))
        return self._select(Select(sequence, position, position, flow, None))

    def _select(self, message: Select) -> list[Outgoing]:
        stream = message.sequence.order[message.asked]
        own = self.state.figures[stream]
        priority, placement = self.model.step(message.flow, stream, own)
        best = message.best
        if best is None or (priority, self._rank[stream]) < (best.priority, self._rank[best.stream]):
            best = StreamCandidate(stream, priority, placement, own)
        if message.asked < len(message.sequence.order) - 1:
            following = Select(message.sequence, message.position, message.asked + 1, message.flow, best)
            return self._ask(following)
        return self._decide(message.sequence, message.position, message.flow, best)

    def _decide(
        self, sequence: JoinSequence, position: int, flow: FlowFigures, best: StreamCandidate
    ) -> list[Outgoing]:
        """The best stream takes the position, and the one that had it takes the place of the best."""
        order, placements = list(sequence.order), list(sequence.placements)
        swapped = order.index(best.stream)
        order[swapped], order[position] = order[position], best.stream
        placements[position] = best.placement
        decided = JoinSequence(sequence.head, tuple(order), tuple(placements))
        if position == len(order) - 1:
            return [(self.model.topology.site_of[sequence.head], SequencesDecided((decided,)))]
        after = self.model.join(flow, best.stream, best.figures, best.placement)
        return self._ask(Select(decided, position + 1, position + 1, after, None))

    def _ask(self, message: Seek | Select) -> list[Outgoing]:
        """To the site of the stream that is asked."""
        position = message.position if isinstance(message, Seek) else message.asked
        return [(self.model.topology.site_of[message.sequence.order[position]], message)]
