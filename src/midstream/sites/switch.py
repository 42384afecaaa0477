"""Changing to new sequences at one epoch at all affected sites: the distributed track, in two phases.

The old operators run on meanwhile. A site that has all windows of its new ones says so to all others (local
ready). Once all have, it says that it knows, and from which epoch on it can do as they all do (global
ready). When it has heard this from all others as well, the new operators are in use from the latest of
these epochs on. All sites hear the same, so they take the same epoch; and a site that comes to the epoch it
has offered before it has heard from all waits. So each row's results are made by the old plan or by the new
one, everywhere.

Sequences of different heads make different results, so they may change at different epochs. Switches of
one head follow each other.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from midstream.plan.site_operators import Operators, windows_in
from midstream.query.network import Site
from midstream.sites.messages import (
    GlobalReady,
    LocalReady,
    Outgoing,
    Prepare,
    SwitchId,
    Synchronisation,
)
from midstream.sites.window_copies import WindowCopies


class SwitchState(msgspec.Struct):
    """What a site knows of one switch."""

    affected: tuple[Site, ...] = ()
    operators: dict[str, Operators] | None = None
    """Its new ones, by head; None if others were told of the switch first."""
    local: set[Site] = msgspec.field(default_factory=set)
    """The sites that are local ready."""
    offers: dict[Site, int] = msgspec.field(default_factory=dict)
    """The sites that are global ready, with the epochs that they have offered."""
    epoch: int | None = None
    """The one at which all switch."""


class SwitchesState(msgspec.Struct):
    """What a site remembers of switches."""

    in_use: dict[str, list[tuple[int, Operators]]]
    """Of each head, its operators and from which epoch on they are used."""
    under_way: dict[SwitchId, SwitchState] = msgspec.field(default_factory=dict)


class Switches:
    """A site's part in all switches."""

    def __init__(self, site: Site, state: SwitchesState, windows: WindowCopies, lead: int) -> None:
        """A site offers an epoch that is so many after its next one, so that it need not wait for answers."""
        self.site = site
        self.state = state
        self.windows = windows
        self.lead = lead

    def handle(self, source: Site, message: Synchronisation) -> None:
        """Take note; what follows is for :meth:`advance`."""
        switch = self.state.under_way.setdefault(message.switch, SwitchState())
        match message:
            case Prepare(_, affected, operators):
                switch.affected, switch.operators = affected, operators
            case LocalReady():
                switch.local.add(source)
            case GlobalReady(_, epoch):
                switch.offers[source] = epoch

    def advance(self, next_epoch: int) -> list[Outgoing]:
        """Do all that can be done now: become ready, or learn when to switch."""
        found: list[Outgoing] = []
        earlier_heads: set[str] = set()
        for id_, switch in list(self.state.under_way.items()):
            if switch.operators is None:
                continue
            if earlier_heads.isdisjoint(switch.operators):
                found += self._advance(id_, switch, next_epoch)
            if switch.epoch is None:
                earlier_heads.update(switch.operators)
        return found

    def _advance(self, id_: SwitchId, switch: SwitchState, next_epoch: int) -> list[Outgoing]:
        operators = switch.operators or {}
        others = [site for site in switch.affected if site != self.site]
        windows = {stream for each in operators.values() for stream in windows_in(each)}
        first = self.windows.earliest(windows, max(next_epoch + self.lead, self._last_switch(operators)))
        found: list[Outgoing] = []
        if self.site not in switch.local:
            if not all(self.windows.is_prepared(stream, first) for stream in windows):
                return []
            switch.local.add(self.site)
            found += [(site, LocalReady(id_)) for site in others]
        if self.site not in switch.offers and len(switch.local) == len(switch.affected):
            switch.offers[self.site] = first
            found += [(site, GlobalReady(id_, first)) for site in others]
        if len(switch.offers) == len(switch.affected):
            switch.epoch = max(switch.offers.values())
            for head, new in operators.items():
                self.state.in_use[head].append((switch.epoch, new))
            del self.state.under_way[id_]
        return found

    def _last_switch(self, heads: Iterable[str]) -> int:
        """When operators of some heads changed last. No later switch may be before.

        Its sites need not be the same ones. But the site that begins the switches of a head takes part in
        all of them, so it is enough that each site goes by what it knows itself.
        """
        return max(self.state.in_use[head][-1][0] for head in heads)

    def may_run(self, epoch: int) -> bool:
        """Whether it is known which operators an epoch is for."""
        return all(
            epoch < switch.offers.get(self.site, epoch + 1) for switch in self.state.under_way.values()
        )

    def operators_at(self, epoch: int) -> dict[str, Operators]:
        """The operators of an epoch, by head."""
        return {head: _at(versions, epoch) for head, versions in self.state.in_use.items()}

    def wanted_windows(self, next_epoch: int) -> set[str]:
        """The windows that are needed here, now or after a switch."""
        self._forget(next_epoch)
        sets = [operators for versions in self.state.in_use.values() for _, operators in versions]
        for switch in self.state.under_way.values():
            sets += (switch.operators or {}).values()
        return {stream for operators in sets for stream in windows_in(operators)}

    def _forget(self, next_epoch: int) -> None:
        """Drop operators that no epoch uses any more."""
        for versions in self.state.in_use.values():
            while len(versions) > 1 and versions[1][0] <= next_epoch:
                del versions[0]


def _at(versions: list[tuple[int, Operators]], epoch: int) -> Operators:
    found: Operators = ()
    for since, operators in versions:
        if since <= epoch:
            found = operators
    return found
