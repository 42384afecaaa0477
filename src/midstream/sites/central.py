"""Central modification (algorithm 2): one site knows the figures of all streams and decides for all heads."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from midstream.plan.sited_plan import JoinSequence
from midstream.query.network import Site
from midstream.sites.cost import SiteCostModel, StreamFigures
from midstream.sites.greedy import greedy_plan
from midstream.sites.messages import FiguresReport, Outgoing, SequencesDecided


class CentralState(msgspec.Struct):
    """What the coordinator remembers."""

    figures: dict[str, StreamFigures]
    """Of all streams, as they were reported last."""
    is_busy: bool = False
    """Whether a switch is under way."""
    is_outdated: bool = False
    """Whether something was reported since the plan was found."""


class Central:
    """The part of the coordinator in central modification; other sites only report to it."""

    def __init__(
        self, model: SiteCostModel, site: Site, state: CentralState, sequences: Mapping[str, JoinSequence]
    ) -> None:
        """The sequences are those of all heads, as they are now."""
        self.model = model
        self.site = site
        self.state = state
        self.sequences = sequences

    def handle(self, message: FiguresReport) -> list[Outgoing]:
        """Note the figures, and decide if nothing is under way."""
        self.state.figures[message.stream] = message.figures
        self.state.is_outdated = True
        return self._decide()

    def finished(self) -> list[Outgoing]:
        """The sequences that were decided are in use: the next change may come."""
        self.state.is_busy = False
        return self._decide()

    def _decide(self) -> list[Outgoing]:
        if self.state.is_busy or not self.state.is_outdated:
            return []
        self.state.is_busy, self.state.is_outdated = True, False
        plan = greedy_plan(self.model, self.state.figures)
        return [(self.site, SequencesDecided(plan.sequences))]
