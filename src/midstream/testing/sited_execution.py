"""Runs node operator sets row by row, as the paper says, to compare executions of sited plans with.

An epoch is run head by head. The new rows of a head are where it lives. There all operators are carried out
whose first argument they are: joins find rows in the window, ships move them to another site, where it goes
on. What has found a row of every stream is a result once it is at the sink. A head joins rows of its own
epoch only of streams that the query names before it, so no result is made twice. As short and simple as
possible; never optimise it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from midstream.plan.site_operators import (
    Flow,
    JoinOperator,
    Operators,
    ShipOperator,
    node_operator_sets,
    windows_in,
)
from midstream.plan.sited_plan import SitedPlan
from midstream.query.network import Site
from midstream.query.topology import Topology

Combination = dict[str, Any]
"""A row of each of some streams."""
Joins = Callable[[str, Combination], bool]
"""Whether the row of a stream joins with the others of a combination."""
WindowAt = Callable[[Site, str], Iterable[tuple[int, Any]]]
"""The rows of a stream at a site, each with its epoch."""


@dataclass(slots=True)
class ReferenceLinkTraffic:
    """What goes over one link, in one direction."""

    messages: int = 0
    rows: int = 0
    bytes: float = 0.0


@dataclass(slots=True)
class Work:
    """What an epoch, or several, have made the sites do."""

    links: dict[tuple[Site, Site], ReferenceLinkTraffic] = field(default_factory=dict)
    probed_rows: int = 0
    """Rows of windows that were compared, as by nested loops."""
    stored_rows: int = 0

    def ship(self, source: Site, target: Site, rows: int, size: float) -> None:
        """Count rows that are sent in one message, if there are any."""
        if rows:
            link = self.links.setdefault((source, target), ReferenceLinkTraffic())
            link.messages += 1
            link.rows += rows
            link.bytes += size


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadRun:
    """How the new rows of one head in one epoch are joined."""

    topology: Topology
    joins: Joins
    row_bytes: Mapping[str, float]
    operators: Mapping[Site, Operators]
    """Those for this head, by site."""
    window_at: WindowAt
    work: Work

    def results(self, head: str, epoch: int, rows: Iterable[Any]) -> list[Combination]:
        """All results whose newest row is one of these, that have come to the sink."""
        new = [{head: row} for row in rows]
        return self._follow(epoch, Flow(head, head), self.topology.site_of[head], new)

    def _follow(self, epoch: int, flow: Flow, site: Site, found: list[Combination]) -> list[Combination]:
        if not found:
            return []
        streams = self.topology.streams
        results = found if site == self.topology.sink and len(found[0]) == len(streams) else []
        for operator in self.operators.get(site, ()):
            if isinstance(operator, JoinOperator) and operator.flow == flow:
                newest = epoch if streams.index(operator.stream) < streams.index(flow.head) else epoch - 1
                window = [row for since, row in self.window_at(site, operator.stream) if since <= newest]
                self.work.probed_rows += len(found) * len(window)
                pairs = ({**one, operator.stream: row} for one in found for row in window)
                joined = [pair for pair in pairs if self.joins(operator.stream, pair)]
                results = results + self._follow(epoch, Flow(flow.head, operator.stream), site, joined)
            elif isinstance(operator, ShipOperator) and operator.flow == flow:
                if not flow.is_stream:
                    size = sum(self.row_bytes[stream] for stream in found[0])
                    self.work.ship(site, operator.site, len(found), size * len(found))
                results = results + self._follow(epoch, flow, operator.site, found)
        return results


@dataclass(frozen=True, kw_only=True)
class SitedExecution:
    """A query with sites, epoch by epoch, all of whose sites run each epoch together."""

    topology: Topology
    joins: Joins
    row_bytes: Mapping[str, float]
    window: int
    """How many epochs after its own a row may still be needed."""
    _history: list[Mapping[str, Sequence[Any]]] = field(default_factory=list)

    def run_epoch(self, plan: SitedPlan, rows: Mapping[str, Sequence[Any]], work: Work) -> list[Combination]:
        """The results of an epoch; what it takes is added to ``work``."""
        topology = self.topology
        self._history.append(rows)
        epoch = len(self._history) - 1
        sets = node_operator_sets(plan, topology)
        for site, operators in sets.items():
            for operator in operators:
                if isinstance(operator, ShipOperator) and operator.flow.is_stream:
                    shipped = len(rows.get(operator.flow.head, ()))
                    size = shipped * self.row_bytes[operator.flow.head]
                    work.ship(site, operator.site, shipped, size)
            work.stored_rows += sum(len(rows.get(stream, ())) for stream in windows_in(operators))
        found: list[Combination] = []
        for sequence in plan.sequences:
            run = HeadRun(
                topology=topology,
                joins=self.joins,
                row_bytes=self.row_bytes,
                operators=node_operator_sets(SitedPlan((sequence,)), topology),
                window_at=lambda site, stream: self._window(sets[site], stream, epoch),
                work=work,
            )
            found += run.results(sequence.head, epoch, rows.get(sequence.head, ()))
        return found

    def _window(self, operators: Operators, stream: str, epoch: int) -> list[tuple[int, Any]]:
        """What a site has of a stream: nothing, unless it keeps its window."""
        if stream not in windows_in(operators):
            return []
        epochs = range(max(0, epoch - self.window), epoch + 1)
        return [(since, row) for since in epochs for row in self._history[since].get(stream, ())]
