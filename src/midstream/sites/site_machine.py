"""What one site does besides joining: it finds other plans together with the others, and changes to them.

A machine without input and output: it is told what happens (rows have arrived, a message has come, time has
passed, figures have changed) and answers with what is to be sent. All that it knows is in its state, which
whoever runs it keeps: the answer to an event may be sent once the state after it is safe. Then a crash is
the same as messages that were lost, and those are sent again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import msgspec

from midstream.errors import InternalError
from midstream.plan.site_operators import Operators, changed_sites, operators_of_sequence, windows_in
from midstream.plan.sited_plan import JoinSequence, SitedPlan
from midstream.query.network import Site
from midstream.sites.central import Central, CentralState
from midstream.sites.cost import SiteCostModel, StreamFigures
from midstream.sites.delivery import Delivery, Envelope, PeerState
from midstream.sites.messages import (
    FiguresReport,
    Message,
    Modification,
    Outgoing,
    Prepare,
    SequencesDecided,
    SwitchId,
)
from midstream.sites.messages import Synchronisation as SynchronisationMessage
from midstream.sites.relay import Relay, RelayState
from midstream.sites.switch import Switches, SwitchesState
from midstream.sites.thresholds import exceeds
from midstream.sites.window_copies import OwnWindow, WindowCopies, WindowCopy, WindowsState


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteSettings:
    """What all sites of a query agree on."""

    model: SiteCostModel
    window: int
    """In epochs."""
    coordinator: Site | None = None
    """The site that decides about all plans; None if each site of a head does about its sequence."""
    threshold: float = 0.2
    """How much a figure must change, as a share of it, until sequences are looked at again."""
    lead: int = 1
    """How many epochs a switch is announced ahead."""
    portion: int = 2
    """How many epochs of a window are fetched at once."""


class SiteState(msgspec.Struct):
    """All that a site knows."""

    relay: RelayState
    windows: WindowsState
    switches: SwitchesState
    sequences: dict[str, JoinSequence]
    """As this site decided last: those of its own heads, or at the coordinator of all heads."""
    central: CentralState | None
    """At the coordinator."""
    peers: dict[Site, PeerState] = msgspec.field(default_factory=dict)
    next_epoch: int = 0
    begun: int = 0
    """How many switches this site has begun."""
    waiting: dict[SwitchId, list[str]] = msgspec.field(default_factory=dict)
    """Switches that this site has begun and does not know the epoch of, and their heads."""


class EpochRun(NamedTuple):
    """An epoch that a site runs."""

    epoch: int
    operators: dict[str, Operators]
    """What to do with the rows of each head."""


def first_state(
    settings: SiteSettings, site: Site, plan: SitedPlan, figures: Mapping[str, StreamFigures]
) -> SiteState:
    """What a site knows when the query begins: the plan was made from these figures."""
    topology = settings.model.topology
    own = topology.streams_at(site)
    operators = {s.head: operators_of_sequence(s, topology) for s in plan.sequences}
    windows = {
        each: {stream for sets in operators.values() for stream in windows_in(sets.get(each, ()))}
        for each in topology.sites
    }
    subscribers = {
        stream: [each for each in windows if each != site and stream in windows[each]] for stream in own
    }
    copies = sorted(windows[site] - {*own})
    central = settings.coordinator == site
    decides_about = topology.streams if central else own if settings.coordinator is None else ()
    return SiteState(
        relay=RelayState({stream: figures[stream] for stream in own}),
        windows=WindowsState(
            {stream: OwnWindow(subscribers=subscribers[stream]) for stream in own},
            {stream: WindowCopy(is_subscribed=True, starts=0) for stream in copies},
        ),
        switches=SwitchesState({head: [(0, sets.get(site, ()))] for head, sets in operators.items()}),
        sequences={head: plan.sequence(head) for head in decides_about},
        central=CentralState(dict(figures)) if central else None,
    )


class SiteMachine:
    """The machine of one site."""

    def __init__(self, settings: SiteSettings, site: Site, state: SiteState) -> None:
        """The state is that of :func:`first_state`, or the one that another machine has left."""
        self.settings = settings
        self.site = site
        self.state = state
        topology = settings.model.topology
        self._delivery = Delivery(site, state.peers)
        self._relay = Relay(settings.model, state.relay, state.sequences)
        self._central = (
            None if state.central is None else Central(settings.model, site, state.central, state.sequences)
        )
        self._windows = WindowCopies(
            topology.site_of, state.windows, window=settings.window, portion=settings.portion
        )
        self._switches = Switches(site, state.switches, self._windows, settings.lead)

    def arrive(self, stream: str) -> list[Envelope]:
        """The rows of the next epoch of one of the site's streams are here."""
        return self._send(self._windows.arrive(stream))

    def observe(self, stream: str, figures: StreamFigures) -> list[Envelope]:
        """What one of the site's streams is like now; if that is news, sequences may change."""
        if not exceeds(self.state.relay.figures[stream], figures, self.settings.threshold):
            return []
        if self.settings.coordinator is None:
            return self._send(self._relay.publish(stream, figures))
        self.state.relay.figures[stream] = figures
        return self._send([(self.settings.coordinator, FiguresReport(stream, figures))])

    def receive(self, envelope: Envelope) -> list[Envelope]:
        """Something came over the network."""
        message = self._delivery.receive(envelope)
        sent = [] if message is None else self._send(self._handle(envelope.source, message))
        if envelope.number and all(answer.target != envelope.source for answer in sent):
            sent.append(self._delivery.acknowledge(envelope.source))
        return sent

    def resend(self) -> list[Envelope]:
        """Time has passed: send again what nobody has acknowledged."""
        return self._delivery.resend()

    def run_epoch(self) -> tuple[EpochRun | None, list[Envelope]]:
        """Run the next epoch, if all is known and here that it needs."""
        epoch = self.state.next_epoch
        if not self._switches.may_run(epoch):
            return None, []
        operators = self._switches.operators_at(epoch)
        needed = {*self.state.windows.own}.union(*map(windows_in, operators.values()))
        if not all(self._windows.has(stream, epoch) for stream in needed):
            return None, []
        self.state.next_epoch += 1
        self._windows.expire(self.state.next_epoch)
        return EpochRun(epoch, operators), self._send([])

    def switch_to(self, sequences: tuple[JoinSequence, ...]) -> list[Envelope]:
        """Change the sequences of heads that this site decides about, and nothing is under way for."""
        heads, relay, central = (
            [sequence.head for sequence in sequences],
            self.state.relay,
            self.state.central,
        )
        busy = [head for head in heads if head in relay.busy or (central is not None and central.is_busy)]
        if busy:
            raise InternalError("a sequence must not change while a change of it is under way", got=busy[0])
        if central is not None:
            central.is_busy = True
        else:
            relay.busy += heads
        return self._send(self._begin_switch(sequences))

    @property
    def is_settled(self) -> bool:
        """Whether nothing is under way here."""
        return not (
            self.state.switches.under_way
            or self.state.waiting
            or self.state.relay.busy
            or any(peer.kept for peer in self.state.peers.values())
        )

    def _handle(self, source: Site, message: Message) -> list[Outgoing]:
        if isinstance(message, SynchronisationMessage):
            self._switches.handle(source, message)
            return []
        if isinstance(message, SequencesDecided):
            return self._begin_switch(message.sequences)
        if isinstance(message, FiguresReport) and self._central is not None:
            return self._central.handle(message)
        if isinstance(message, Modification):
            return self._relay.handle(message)
        return self._windows.handle(source, message, self.state.next_epoch + self.settings.lead)

    def _begin_switch(self, sequences: tuple[JoinSequence, ...]) -> list[Outgoing]:
        """Tell every site whose operators change; the site itself takes part, to know when it is done."""
        topology, known = self.settings.model.topology, self.state.sequences
        heads = [sequence.head for sequence in sequences]
        changed = [s for s in sequences if s != known[s.head]]
        if not changed:
            return self._finished(heads)
        self.state.begun += 1
        id_ = f"{self.site}:{self.state.begun}"
        old = {s.head: operators_of_sequence(known[s.head], topology) for s in changed}
        new = {s.head: operators_of_sequence(s, topology) for s in changed}
        affected = {
            site for head, sets in new.items() for site in changed_sites(old[head], sets, topology.sites)
        }
        affected.add(self.site)
        known.update({s.head: s for s in changed})
        self.state.waiting[id_] = heads
        everybody = tuple(site for site in topology.sites if site in affected)
        return [
            (site, Prepare(id_, everybody, {head: sets.get(site, ()) for head, sets in new.items()}))
            for site in everybody
        ]

    def _finished(self, heads: list[str]) -> list[Outgoing]:
        if self._central is not None:
            return self._central.finished()
        return [outgoing for head in heads for outgoing in self._relay.finished(head)]

    def _send(self, outgoing: list[Outgoing]) -> list[Envelope]:
        """Handle what is for this site itself, do what follows from it, and send the rest."""
        sent: list[Envelope] = []
        queue = list(outgoing)
        while True:
            for target, message in queue:
                if target == self.site:
                    queue.extend(self._handle(self.site, message))
                else:
                    sent.append(self._delivery.send((target, message)))
            next_epoch = self.state.next_epoch
            wanted = self._switches.wanted_windows(next_epoch)
            queue = self._windows.want(wanted, next_epoch + self.settings.lead)
            queue += self._switches.advance(next_epoch)
            for id_ in [one for one in self.state.waiting if one not in self.state.switches.under_way]:
                queue += self._finished(self.state.waiting.pop(id_))
            if not queue:
                return sent
