"""Messages between two sites, each once and in order, over a network that loses, repeats and reorders them.

Messages to a site are numbered and kept until it has acknowledged them; what is not acknowledged is sent
again. A site takes only the message that it expects next, so one that comes twice or too early does
nothing. What a site keeps is part of its state: after a crash it sends again what may have been lost, and
takes nothing twice.
"""

from __future__ import annotations

import msgspec

from midstream.query.network import Site
from midstream.sites.messages import Message, Outgoing


class Envelope(msgspec.Struct, frozen=True):
    """What goes over the network: a message with its number, or only an acknowledgement."""

    source: Site
    target: Site
    number: int
    """0 if there is no message."""
    acknowledged: int
    """The sender has taken all messages of the target up to this number."""
    message: Message | None


class PeerState(msgspec.Struct):
    """What a site remembers of its messages to and from another one."""

    sent: int = 0
    taken: int = 0
    kept: list[tuple[int, Message]] = msgspec.field(default_factory=list)
    """Sent, and not acknowledged yet."""


class Delivery:
    """A site's end of its connections."""

    def __init__(self, site: Site, peers: dict[Site, PeerState]) -> None:
        """The state of each connection is kept in ``peers``."""
        self.site = site
        self.peers = peers

    def send(self, outgoing: Outgoing) -> Envelope:
        """A message to another site."""
        target, message = outgoing
        peer = self._peer(target)
        peer.sent += 1
        peer.kept.append((peer.sent, message))
        return Envelope(self.site, target, peer.sent, peer.taken, message)

    def receive(self, envelope: Envelope) -> Message | None:
        """The message that has arrived, if it is the next one."""
        peer = self._peer(envelope.source)
        if peer.kept and peer.kept[0][0] <= envelope.acknowledged:
            peer.kept = [kept for kept in peer.kept if kept[0] > envelope.acknowledged]
        if envelope.number != peer.taken + 1:
            return None
        peer.taken += 1
        return envelope.message

    def acknowledge(self, source: Site) -> Envelope:
        """Tell a site what has been taken."""
        return Envelope(self.site, source, 0, self._peer(source).taken, None)

    def resend(self) -> list[Envelope]:
        """Everything that may have been lost."""
        return [
            Envelope(self.site, target, number, peer.taken, message)
            for target, peer in self.peers.items()
            for number, message in peer.kept
        ]

    def _peer(self, site: Site) -> PeerState:
        peer = self.peers.get(site)
        if peer is None:
            peer = self.peers[site] = PeerState()
        return peer
