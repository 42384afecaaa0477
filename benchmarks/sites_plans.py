"""Sited plans by themselves: how much dearer greedy ones are than the best, and whether all find the same."""

from __future__ import annotations

import statistics
import time
from collections import Counter, deque
from collections.abc import Mapping
from random import Random
from typing import Any

from rich.console import Console
from rich.table import Table

from midstream.plan.sited_plan import JoinSequence
from midstream.query.network import Link, Network
from midstream.query.topology import Topology
from midstream.sites.central import Central, CentralState
from midstream.sites.cost import SiteCostModel, StreamFigures
from midstream.sites.greedy import greedy_plan
from midstream.sites.messages import FiguresReport, Outgoing, SequencesDecided
from midstream.sites.optimal import optimal_plan
from midstream.sites.relay import Relay, RelayState
from midstream.sites.shared_plan import SharedCosts, shared_plan

PAPER_LINK = Link(latency=0.005, bytes_per_second=128_000.0)
"""1024 kbps and 5 ms: the default settings of the paper."""
COMPUTE_SECONDS = 1e-6
"""To compare with a row or to store one; the paper does not say what its prototype took."""
GAP_QUERIES = 1_000
SHARING_SHARE = 8
"""Of so many queries, two are planned for costs that are shared: it takes a tenth of a second each."""
CHANGES = 20_000


def paper_model(count: int, network: Network | None = None) -> SiteCostModel:
    """S1 at N1, S2 at N2 ...; windows of 500 ms; the sink is where S1 is."""
    names = [f"S{i}" for i in range(1, count + 1)]
    topology = Topology(
        site_of={name: f"N{name[1:]}" for name in names},
        sink="N1",
        network=network or Network(default=PAPER_LINK),
    )
    return SiteCostModel(
        topology=topology,
        windows=dict.fromkeys(names, 0.5),
        probe_seconds=COMPUTE_SECONDS,
        update_seconds=COMPUTE_SECONDS,
    )


def random_figures(rng: Random) -> StreamFigures:
    """A stream."""
    return StreamFigures(rng.uniform(20, 300), rng.uniform(0.001, 0.05), rng.choice([50.0, 150.0, 400.0]))


def random_network(rng: Random, count: int) -> Network:
    """Every pair of sites has a link of its own."""
    sites = [f"N{i}" for i in range(1, count + 1)]
    links = {
        frozenset((a, b)): Link(latency=rng.uniform(0.001, 0.1), bytes_per_second=10 ** rng.uniform(4.5, 6.5))
        for a in sites
        for b in sites
        if a < b
    }
    return Network(PAPER_LINK, links)


def measure_gaps(console: Console) -> dict[str, Any]:
    """What greedy plans cost, in the cost of better ones; half of the queries have links that differ."""
    rng, links = Random(1), ("different links", "equal links")
    gaps: dict[str, list[float]] = {}
    for number in range(GAP_QUERIES):
        count = rng.randint(3, 6)
        model = paper_model(count, None if number % 2 else random_network(rng, count))
        figures = {name: random_figures(rng) for name in model.topology.site_of}
        greedy, best = greedy_plan(model, figures), optimal_plan(model, figures)
        gap = model.plan_cost(greedy, figures) / model.plan_cost(best, figures)
        gaps.setdefault(f"by the equations, {links[number % 2]}", []).append(gap)
        if number % SHARING_SHARE < 2:
            costs = SharedCosts(model, figures)
            least = costs.plan_cost(shared_plan(model, figures))
            for name, plan in (("greedy", greedy), ("best by the equations", best)):
                shared_gap = costs.plan_cost(plan) / least
                gaps.setdefault(f"if shared, {name}, {links[number % 2]}", []).append(shared_gap)
    table = Table(title=f"Greedy plan / best plan, cost of {GAP_QUERIES:,} queries of 3 to 6 streams")
    for column in ("", "queries", "is the best", "median", "90 %", "99 %", "most"):
        table.add_column(column, justify="right")
    for kind, found in sorted(gaps.items()):
        found.sort()
        best_share = sum(each < 1 + 1e-9 for each in found) / len(found)
        shares = (found[round(share * (len(found) - 1))] for share in (0.9, 0.99, 1))
        shown = (f"{statistics.median(found):.3f}", *(f"{each:.3f}" for each in shares))
        table.add_row(kind, str(len(found)), f"{best_share:.0%}", *shown)
    console.print(table)
    return gaps


class Sites:
    """All sites of a query without a network between them: only how they find another plan."""

    def __init__(self, model: SiteCostModel, figures: Mapping[str, StreamFigures]) -> None:
        """Distributed and central modification begin with the same plan."""
        self.model = model
        plan = greedy_plan(model, figures)
        self.relayed = {s.head: s for s in plan.sequences}
        self.central_sequences = {s.head: s for s in plan.sequences}
        self.relays = {
            site: Relay(
                model, RelayState({n: figures[n] for n in model.topology.streams_at(site)}), self.relayed
            )
            for site in model.topology.sites
        }
        self.central = Central(model, "N1", CentralState(dict(figures)), self.central_sequences)
        self.counts: Counter[str] = Counter()

    def change_distributed(self, stream: str, figures: StreamFigures) -> None:
        """Algorithm 3."""
        site = self.model.topology.site_of[stream]
        queue: deque[tuple[str, Outgoing]] = deque(
            (site, out) for out in self.relays[site].publish(stream, figures)
        )
        while queue:
            source, (target, message) = queue.popleft()
            if source != target:
                self.counts[type(message).__name__] += 1
            if isinstance(message, SequencesDecided):
                (sequence,) = message.sequences
                self.relayed[sequence.head] = sequence
                answer = self.relays[target].finished(sequence.head)
            else:
                answer = self.relays[target].handle(message)
            queue.extend((target, out) for out in answer)

    def change_centrally(self, stream: str, figures: StreamFigures) -> None:
        """Algorithm 2."""
        ((_, message),) = self.central.handle(FiguresReport(stream, figures))
        assert isinstance(message, SequencesDecided)
        changed: dict[str, JoinSequence] = {s.head: s for s in message.sequences}
        self.counts["affected heads"] += sum(changed[h] != s for h, s in self.central_sequences.items())
        self.central_sequences.update(changed)
        assert not self.central.finished()


def measure_changes(console: Console) -> dict[str, Any]:
    """Random changes of 3 to 8 sites: both ways must end in the same plan, which the greedy one is."""
    rng = Random(2)
    by_sites: dict[int, Counter[str]] = {count: Counter() for count in range(3, 9)}
    started = time.process_time()
    while sum(each["changes"] for each in by_sites.values()) < CHANGES:
        count = rng.randint(3, 8)
        network = random_network(rng, count) if rng.random() < 0.5 else None
        model = paper_model(count, network)
        figures = {name: random_figures(rng) for name in model.topology.site_of}
        sites = Sites(model, figures)
        for _ in range(20):
            stream, other = rng.choice(list(figures)), random_figures(rng)
            what = rng.choice(StreamFigures.__struct_fields__)
            values = {f: getattr(other if f == what else figures[stream], f) for f in other.__struct_fields__}
            figures[stream] = StreamFigures(**values)
            sites.change_distributed(stream, figures[stream])
            sites.change_centrally(stream, figures[stream])
            by_sites[count]["differ"] += sites.relayed != sites.central_sequences
            by_sites[count]["changes"] += 1
        by_sites[count].update(sites.counts)
    table = Table(title=f"{CHANGES:,} random changes of one figure: central and distributed modification")
    for column in ("sites", "changes", "plans that differ", "heads affected", "changed", "seek", "select"):
        table.add_column(column, justify="right")
    for count, seen in by_sites.items():
        each = seen["changes"]
        figures_shown = (seen[k] / each for k in ("affected heads", "Changed", "Seek", "Select"))
        table.add_row(str(count), f"{each:,}", str(seen["differ"]), *(f"{f:.1f}" for f in figures_shown))
    console.print(
        table, "The last four columns are means per change; messages of a site to itself do not count."
    )
    console.print(f"{time.process_time() - started:.0f} s of processor time.")
    return {str(count): dict(seen) for count, seen in by_sites.items()}
