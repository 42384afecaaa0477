"""Sites and the links between them in virtual time: what one run costs, by kinds, and when.

The machines of the sites are the real ones; rows are real and are joined row by row. Only time is virtual:
a message takes its link for the time of its bytes, one after the other, and comes after the latency of the
link. An epoch is 100 ms of rows. What it costs is the time of what it ships and computes, whichever site
does it: the measure of the paper, the sum over all nodes.
"""

from __future__ import annotations

import heapq
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from random import Random

import msgspec

from midstream.plan.site_operators import Operators, ShipOperator, union, windows_in
from midstream.query.network import Site
from midstream.sites.cost import SiteCostModel, StreamFigures
from midstream.sites.delivery import Envelope
from midstream.sites.greedy import greedy_plan
from midstream.sites.messages import (
    GlobalReady,
    LocalReady,
    Message,
    Modification,
    Portion,
    Prepare,
    Rows,
    Subscribed,
)
from midstream.sites.site_machine import SiteMachine, SiteSettings, first_state
from midstream.testing.sited_execution import HeadRun, Work

EPOCH_SECONDS = 0.1
WINDOW_EPOCHS = 5
ROW_BYTES = 150.0
KEYS = 100
"""Selectivity .01."""

Row = tuple[float, int]
"""Its time and its key."""


def kind_of(message: Message) -> str:
    """As the columns of table 3: finding a plan, synchronising, moving windows; new rows are none of them."""
    if isinstance(message, Modification | Prepare):
        return "modification"
    if isinstance(message, LocalReady | GlobalReady):
        return "synchronisation"
    return "rows" if isinstance(message, Rows) else "windows"


@dataclass
class Cost:
    """What was spent, in seconds, and how many messages there were."""

    seconds: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    messages: Counter[str] = field(default_factory=Counter)


@dataclass
class VirtualSites:
    """One run. Figures of streams are observed once an epoch, if the sites are to adapt."""

    model: SiteCostModel
    rate_at: Callable[[str, float], float]
    """The rate of a stream at a time."""
    adapts: bool
    coordinator: Site | None = None
    lead: int = 2
    now: float = 0.0
    costs: dict[int, Cost] = field(default_factory=dict)
    """By epochs."""
    results: int = 0

    def __post_init__(self) -> None:
        """All sites with the plan for the rates of the beginning."""
        topology = self.model.topology
        self.figures = {name: self._figures(name, 0.0) for name in topology.streams}
        settings = SiteSettings(
            model=self.model,
            window=WINDOW_EPOCHS,
            coordinator=self.coordinator,
            lead=self.lead,
            portion=WINDOW_EPOCHS,
        )
        plan = greedy_plan(self.model, self.figures)
        self.machines = {
            site: SiteMachine(settings, site, first_state(settings, site, plan, self.figures))
            for site in topology.sites
        }
        self.rows: dict[str, list[list[Row]]] = {name: [] for name in topology.streams}
        self.ran: dict[int, dict[Site, tuple[dict[str, Operators], frozenset[str]]]] = {}
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._number = 0
        self._free_at: defaultdict[tuple[Site, Site], float] = defaultdict(float)
        self._random = Random(1)

    def run(self, seconds: float) -> VirtualSites:
        """Let time pass."""
        for number in range(round(seconds / EPOCH_SECONDS)):
            self._at((number + 1) * EPOCH_SECONDS, partial(self._begin_epoch, number))
        while self._events:
            self.now, _, event = heapq.heappop(self._events)
            event()
        return self

    def cost(self, epoch: int) -> Cost:
        """What was spent in an epoch."""
        return self.costs.setdefault(epoch, Cost())

    def _figures(self, stream: str, time: float) -> StreamFigures:
        return StreamFigures(self.rate_at(stream, time), 1 / KEYS, ROW_BYTES)

    def _at(self, time: float, event: Callable[[], None]) -> None:
        self._number += 1
        heapq.heappush(self._events, (time, self._number, event))

    def _begin_epoch(self, number: int) -> None:
        """The rows of an epoch are complete: they arrive at their sites."""
        begin = number * EPOCH_SECONDS
        for stream, epochs in self.rows.items():
            count = round(self.rate_at(stream, begin) * EPOCH_SECONDS)
            times = (begin + i * EPOCH_SECONDS / count for i in range(count))
            epochs.append([(time, self._random.randrange(KEYS)) for time in times])
        for stream in self.rows:
            machine = self.machines[self.model.topology.site_of[stream]]
            sent = machine.arrive(stream)
            if self.adapts:
                sent += machine.observe(stream, self._figures(stream, begin))
            self._send(sent)
        self._run_sites()

    def _send(self, envelopes: list[Envelope]) -> None:
        for envelope in envelopes:
            message, link = envelope.message, (envelope.source, envelope.target)
            size = float(len(msgspec.msgpack.encode(envelope)))
            if isinstance(message, Rows):
                size += len(self.rows[message.stream][message.epoch]) * ROW_BYTES
            elif isinstance(message, Portion | Subscribed):
                size += sum(len(self.rows[message.stream][epoch]) for epoch in message.epochs) * ROW_BYTES
            if message is not None:
                kind = kind_of(message)
                cost = self.cost(int(self.now / EPOCH_SECONDS - 1e-9))
                cost.messages[kind] += 1
                cost.seconds[kind] += self.model.topology.network.transfer_seconds(*link, size)
            arrival = self._take_link(link, size)
            self._at(arrival, partial(self._receive, envelope))

    def _take_link(self, link: tuple[Site, Site], size: float) -> float:
        """When some bytes come that are sent now; acknowledgements and rows share the link."""
        of = self.model.topology.network.link(*link)
        self._free_at[link] = max(self.now, self._free_at[link]) + size / of.bytes_per_second
        return self._free_at[link] + of.latency

    def _receive(self, envelope: Envelope) -> None:
        self._send(self.machines[envelope.target].receive(envelope))
        self._run_sites()

    def _run_sites(self) -> None:
        moved = True
        while moved:
            moved = False
            for site, machine in self.machines.items():
                run, sent = machine.run_epoch()
                self._send(sent)
                if run is not None:
                    moved = True
                    copies = machine.state.windows.copies.items()
                    subscribed = frozenset(stream for stream, copy in copies if copy.is_subscribed)
                    self.ran.setdefault(run.epoch, {})[site] = (run.operators, subscribed)
                    if len(self.ran[run.epoch]) == len(self.machines):
                        self._join(run.epoch)

    def _join(self, epoch: int) -> None:
        """All sites have run an epoch: count what that was."""
        ran = self.ran.pop(epoch)
        topology, work = self.model.topology, Work()
        for site, (operators, _) in ran.items():
            together = union(operators.values())
            for operator in together:
                # A copy has these rows from its subscription, which is counted where it is sent.
                if isinstance(operator, ShipOperator) and operator.flow.is_stream:
                    subscribed = ran[operator.site][1]
                    count = len(self.rows[operator.flow.head][epoch])
                    if operator.flow.head not in subscribed:
                        work.ship(site, operator.site, count, count * ROW_BYTES)
            work.stored_rows += sum(len(self.rows[stream][epoch]) for stream in windows_in(together))
        for head, epochs in self.rows.items():
            run = HeadRun(
                topology=topology,
                joins=_joins,
                row_bytes=dict.fromkeys(self.rows, ROW_BYTES),
                operators={site: operators[head] for site, (operators, _) in ran.items()},
                window_at=lambda _site, stream: self._window(stream, epoch),
                work=work,
            )
            self.results += len(run.results(head, epoch, epochs[epoch]))
        seconds = self.cost(epoch).seconds
        for link, traffic in work.links.items():
            latency = topology.network.link(*link).latency
            seconds["rows"] += traffic.messages * latency
            seconds["rows"] += traffic.bytes / topology.network.link(*link).bytes_per_second
            self._take_link(link, traffic.bytes)
        seconds["computing"] += work.probed_rows * self.model.probe_seconds
        seconds["computing"] += work.stored_rows * self.model.update_seconds

    def _window(self, stream: str, epoch: int) -> list[tuple[int, Row]]:
        epochs = range(max(0, epoch - WINDOW_EPOCHS), epoch + 1)
        return [(since, row) for since in epochs for row in self.rows[stream][since]]


def _joins(stream: str, rows: Mapping[str, Row]) -> bool:
    """Equal keys, and not more than 500 ms apart."""
    time, key = rows[stream]
    return all(key == other and abs(time - at) <= 0.5 for at, other in rows.values())
