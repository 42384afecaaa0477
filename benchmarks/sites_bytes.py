"""Bytes over the links: the greedy plan, one that shares, all to the sink, and a job that hashes.

Four streams at four sites, the sink where the first is; each is given its rates and sizes, and rows are real
and joined row by row. A clique has one key, a chain another one for each pair of neighbours. The job that
hashes spreads each shuffle evenly over all sites, and joins a chain from left to right, so it shuffles what
it has found so far for every further key.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from random import Random
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.sites_plans import COMPUTE_SECONDS, PAPER_LINK
from midstream.plan.sited_plan import SitedPlan
from midstream.query.network import Network
from midstream.query.topology import Topology
from midstream.sites.cost import SiteCostModel, StreamFigures, neighbours_of
from midstream.sites.greedy import greedy_plan
from midstream.sites.shared_plan import shared_plan
from midstream.testing.sited_execution import SitedExecution, Work

STREAMS = ("S1", "S2", "S3", "S4")
EPOCHS = 60
EPOCH_SECONDS = 0.1
WINDOW_EPOCHS = 5

Row = tuple[int, ...]
"""Its keys."""


@dataclass(frozen=True)
class ByteCase:
    """Rates, sizes, and how many keys there are."""

    about: str
    rates: tuple[float, ...]
    sizes: tuple[float, ...]
    keys: int


CASES = (
    ByteCase("the paper's: equal streams", (100.0,) * 4, (150.0,) * 4, 100),
    ByteCase("many matches", (100.0,) * 4, (150.0,) * 4, 30),
    ByteCase("few matches", (100.0,) * 4, (150.0,) * 4, 1000),
    ByteCase("S3 ten times as fast, few matches", (50.0, 50.0, 500.0, 50.0), (150.0,) * 4, 1000),
    ByteCase("S3 has large rows, few matches", (100.0,) * 4, (150.0, 150.0, 3000.0, 150.0), 1000),
    ByteCase("S1, at the sink, ten times as fast", (500.0, 50.0, 50.0, 50.0), (150.0,) * 4, 1000),
)


class Data:
    """The rows of a case, and how they join."""

    def __init__(self, case: ByteCase, *, chain: bool) -> None:
        """Of a chain, the i-th stream has the keys i-1 and i; of a clique all have one."""
        self.case = case
        self.chain = chain
        self.row_bytes = dict(zip(STREAMS, case.sizes, strict=True))
        pairs = list(pairwise(STREAMS))
        self.model = SiteCostModel(
            topology=Topology(
                site_of={name: f"N{name[1:]}" for name in STREAMS}, sink="N1", network=Network(PAPER_LINK)
            ),
            windows=dict.fromkeys(STREAMS, 0.5),
            probe_seconds=COMPUTE_SECONDS,
            update_seconds=COMPUTE_SECONDS,
            neighbours=neighbours_of(STREAMS, pairs) if chain else None,
        )
        self.figures = {
            name: StreamFigures(rate, 1 / case.keys, size)
            for name, rate, size in zip(STREAMS, case.rates, case.sizes, strict=True)
        }
        rng = Random(1)
        self.epochs: list[dict[str, list[Row]]] = [
            {
                name: [
                    tuple(rng.randrange(case.keys) for _ in range(2 if chain else 1))
                    for _ in range(round(rate * EPOCH_SECONDS))
                ]
                for name, rate in zip(STREAMS, case.rates, strict=True)
            }
            for _ in range(EPOCHS)
        ]

    def joins(self, stream: str, rows: Mapping[str, Row]) -> bool:
        """Equal keys with all neighbours, or with anybody in a clique."""
        if not self.chain:
            return all(row == rows[stream] for row in rows.values())
        at = STREAMS.index(stream)
        left, right = rows.get(STREAMS[at - 1]) if at else None, rows.get(f"S{at + 2}")
        return (left is None or left[1] == rows[stream][0]) and (right is None or right[0] == rows[stream][1])

    def run(self, plan: SitedPlan) -> tuple[float, int]:
        """Bytes over links, and results."""
        return self._run(self.model.topology, plan)

    def results_of(self, streams: tuple[str, ...]) -> int:
        """How many combinations some first streams make, counted where nothing is shipped."""
        topology = Topology(
            site_of=dict.fromkeys(streams, "N1"), sink="N1", network=self.model.topology.network
        )
        model = SiteCostModel(
            topology=topology,
            windows=self.model.windows,
            probe_seconds=COMPUTE_SECONDS,
            update_seconds=COMPUTE_SECONDS,
            neighbours=self.model.neighbours,
        )
        return self._run(topology, greedy_plan(model, self.figures))[1]

    def _run(self, topology: Topology, plan: SitedPlan) -> tuple[float, int]:
        execution = SitedExecution(
            topology=topology, joins=self.joins, row_bytes=self.row_bytes, window=WINDOW_EPOCHS
        )
        work, found = Work(), 0
        for rows in self.epochs:
            found += len(execution.run_epoch(plan, rows, work))
        return sum(link.bytes for link in work.links.values()), found

    def bytes_of(self, *streams: str) -> float:
        """All rows of some streams."""
        return sum(len(rows[name]) * self.row_bytes[name] for rows in self.epochs for name in streams)

    def hashed(self, results: int) -> float:
        """The ordinary job: all but one in four rows of a shuffle go to another site, results too."""
        moved = self.bytes_of(*STREAMS)
        if self.chain:
            for length in (2, 3):
                prefix = STREAMS[:length]
                moved += self.results_of(prefix) * sum(self.row_bytes[name] for name in prefix)
        moved += results * sum(self.row_bytes.values())
        return moved * (len(STREAMS) - 1) / len(STREAMS)


def run(console: Console) -> dict[str, Any]:
    """All cases, as a clique and as a chain."""
    found: dict[str, Any] = {}
    for chain in (False, True):
        shape = "chain" if chain else "clique"
        table = Table(title=f"Kilobytes per second over all links, a {shape} of four streams")
        for column in ("", "greedy", "shared", "all to the sink", "hashed", "results/s"):
            table.add_column(column, justify="right")
        for case in CASES:
            data, seconds = Data(case, chain=chain), EPOCHS * EPOCH_SECONDS
            greedy, results = data.run(greedy_plan(data.model, data.figures))
            shared, again = data.run(shared_plan(data.model, data.figures))
            assert results == again, "two plans do not agree"
            to_sink = data.bytes_of("S2", "S3", "S4")
            sizes = (greedy, shared, to_sink, data.hashed(results))
            figures = [size / seconds / 1000 for size in sizes]
            found[f"{shape}, {case.about}"] = figures
            table.add_row(case.about, *(f"{f:.1f}" for f in figures), f"{results / seconds:.0f}")
        console.print(table)
    return found
