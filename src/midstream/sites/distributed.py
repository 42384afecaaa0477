"""Distributed modification in a running query: the machines of the sites, one step after each epoch.

Each site knows the figures of its own streams, and what messages have told it (``sites/relay.py``). What it
knows, and the messages that have not been handed over, are in the manifest: messages that are sent after an
epoch are handed over after the next one, and committed with it. So none is lost or comes twice, and a crash
repeats nothing.

When a head's sequence is decided, the plan is changed as by any other decision. Copying windows and the
switch need no messages of their own: that all windows are complete, and from which epoch on the new
operators are in use, is what the manifest says to all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from midstream.plan.sited_plan import JoinSequence, SitedPlan
from midstream.plan.tree import Plan, sited
from midstream.query.network import Site
from midstream.sites.cost import SiteCostModel, StreamFigures
from midstream.sites.messages import Message, Outgoing, SequencesDecided
from midstream.sites.planner import unknown_figures
from midstream.sites.relay import Relay, RelayState

IsNews = Callable[[str, StreamFigures, StreamFigures], bool]
"""Whether figures of a stream differ so much from those that the others know that these are told."""


class PendingMessage(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A message that is handed over after the next epoch."""

    source: Site
    target: Site
    message: Message


class SitesState(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What all sites know."""

    relays: dict[Site, RelayState]
    messages: tuple[PendingMessage, ...] = ()
    decided: dict[str, JoinSequence] = {}
    """Sequences that the plan is still to get, by their heads."""
    switching: tuple[str, ...] = ()
    """Heads whose sequences the plan has got, or is getting."""
    handed_over: int = 0
    """How many messages there were between sites so far."""


class SitesRound:
    """What the sites do after one epoch."""

    def __init__(self, model: SiteCostModel, running: Plan, state: SitesState) -> None:
        self._plan = SitedPlan(running.sequences)
        self._site_of = model.topology.site_of
        self._decided = dict(state.decided)
        self._switching = state.switching
        self._handed_over = state.handed_over
        self._sent: list[PendingMessage] = []
        # Machines change their states; that of the last epoch stays as it was.
        self._relays = {
            site: Relay(model, _copied(relay), self._sequences_at(site))
            for site, relay in state.relays.items()
        }
        self._received = state.messages

    def run(self, figures: dict[str, StreamFigures], is_news: IsNews) -> SitesState:
        """Hand messages over, and let each site look at its streams. No plan is being changed."""
        for head in self._switching:
            self._send(self._site_of[head], self._relays[self._site_of[head]].finished(head))
        for sent in self._received:
            self._hand_over(sent.target, sent.message)
        for stream, now in figures.items():
            site = self._site_of[stream]
            if is_news(stream, self._relays[site].state.figures[stream], now):
                self._send(site, self._relays[site].publish(stream, now))
        self._finish_unchanged()
        return SitesState(
            relays={site: relay.state for site, relay in self._relays.items()},
            messages=tuple(self._sent),
            decided=self._decided,
            handed_over=self._handed_over,
        )

    def _finish_unchanged(self) -> None:
        """A sequence that is as it was needs no switch."""
        while True:
            same = [head for head, decided in self._decided.items() if decided == self._plan.sequence(head)]
            if not same:
                return
            for head in same:
                del self._decided[head]
                self._send(self._site_of[head], self._relays[self._site_of[head]].finished(head))

    def _send(self, source: Site, outgoing: Iterable[Outgoing]) -> None:
        """What is for the same site is there at once."""
        for target, message in outgoing:
            if target == source:
                self._hand_over(target, message)
            else:
                self._handed_over += 1
                self._sent.append(PendingMessage(source, target, message))

    def _hand_over(self, site: Site, message: Message) -> None:
        if isinstance(message, SequencesDecided):
            self._decided.update({sequence.head: sequence for sequence in message.sequences})
        else:
            self._send(site, self._relays[site].handle(message))

    def _sequences_at(self, site: Site) -> dict[str, JoinSequence]:
        return {s.head: s for s in self._plan.sequences if self._site_of[s.head] == site}


def first_state(model: SiteCostModel, figures: dict[str, StreamFigures] | None = None) -> SitesState:
    """What sites know when nothing was said yet: the figures that the plan was made for."""
    known, topology = figures or unknown_figures(model), model.topology
    homes = dict.fromkeys(topology.site_of.values())
    return SitesState(
        {site: RelayState({stream: known[stream] for stream in topology.streams_at(site)}) for site in homes}
    )


def decided_plan(running: Plan, state: SitesState) -> Plan:
    """The running plan with the sequences that were decided."""
    plan = SitedPlan(running.sequences)
    for sequence in state.decided.values():
        plan = plan.with_sequence(sequence)
    return sited(plan.sequences)


def with_switch(state: SitesState) -> SitesState:
    """The plan gets what was decided: heads are free again once it has."""
    switching = (*state.switching, *state.decided)
    return msgspec.structs.replace(state, decided={}, switching=switching)


def write_state(state: SitesState) -> dict[str, Any]:
    """The state as the manifest has it."""
    written: dict[str, Any] = msgspec.to_builtins(state)
    return written


def read_state(written: dict[str, Any]) -> SitesState:
    """The state from what the manifest has; a ``msgspec.ValidationError`` if it is not one."""
    return msgspec.convert(written, SitesState)


def _copied(relay: RelayState) -> RelayState:
    return msgspec.convert(msgspec.to_builtins(relay), RelayState)
