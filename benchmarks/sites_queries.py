"""What real queries with sites send, run in this process: fixed plans against adapting ones.

Three streams at three sites, the sink at the first. In each of three phases another stream brings 20 times as
many rows as the others. Bytes are those of tables that go from a partition of one site to one of another.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
from rich.console import Console
from rich.table import Table

from benchmarks.workloads import SECOND
from midstream.inline import InlineJoin
from midstream.protocol.settings import Settings
from midstream.query.build import build_query
from midstream.query.query import Query
from midstream.query.site_description import SiteDescription
from midstream.query.stream import ColumnRef, Stream
from midstream.sites.planner import SitePolicy
from midstream.values import Micros

HOMES = {"a": "frankfurt", "b": "paris", "c": "oregon"}
PHASES, EPOCHS_EACH = "acb", 20
FEW, MANY, KEYS = 100, 2_000, 10_000
SCHEMA = pa.schema([("t", pa.timestamp("us", tz="UTC")), ("k", pa.int64()), ("text", pa.string())])
FIXED = Settings(None, 16, max_event_time_ahead=None)
CENTRAL = replace(FIXED, adapt=True)
CONTESTANTS = {
    "fixed: all to the sink": FIXED,
    "fixed: greedy before anything is known": replace(FIXED, sites=SitePolicy("greedy")),
    "adapting, shared": CENTRAL,
    "adapting, greedy": replace(CENTRAL, sites=SitePolicy("greedy")),
    "adapting, greedy, distributed": replace(CENTRAL, sites=SitePolicy("greedy", "distributed")),
}


def run(console: Console) -> dict[str, Any]:
    """All contestants over the same rows; they must have as many results."""
    query, epochs = _query(), _epochs()
    figures = {name: _measure(query, settings, epochs) for name, settings in CONTESTANTS.items()}
    table = Table(title="Queries with sites, in process")
    for column in ("", "kB over links", "messages", "plans", "results"):
        table.add_column(column, justify="right" if column else "left")
    for name, one in figures.items():
        cells = (
            f"{one['bytes'] / 1e3:,.0f}",
            f"{one['messages']:,}",
            str(one["plans"]),
            f"{one['results']:,}",
        )
        table.add_row(name, *cells)
    console.print(table)
    if len({one["results"] for one in figures.values()}) > 1:
        raise SystemExit("contestants do not agree on the results")
    return figures


def _measure(query: Query, settings: Settings, epochs: list[dict[str, pa.Table]]) -> dict[str, Any]:
    join = InlineJoin(query, settings=settings)
    total: Counter[str] = Counter()
    plans, results = set(), 0
    for epoch in epochs:
        results += join.run_epoch(epoch).num_rows
        plans.add(join.manifest.plan)
        for counts in join.report.links.values():
            total.update({"bytes": counts.bytes, "messages": counts.messages})
    return {**total, "plans": len(plans), "results": results}


def _query() -> Query:
    sites = SiteDescription().with_sink("frankfurt").with_link((), "1 ms", "1 mbit")
    for name, site in HOMES.items():
        sites = sites.with_stream(name, site)
    streams = [Stream(name, SCHEMA, ColumnRef(name, ("t",)), Micros(0)) for name in HOMES]
    return build_query(
        streams,
        ["a.k = b.k", "b.k = c.k"],
        default_window=Micros(30 * SECOND),
        topology=sites.topology(HOMES),
    )


def _epochs() -> list[dict[str, pa.Table]]:
    rng = np.random.default_rng(1)
    return [
        {name: _rows(rng, number, MANY if name == PHASES[number // EPOCHS_EACH] else FEW) for name in HOMES}
        for number in range(EPOCHS_EACH * len(PHASES))
    ]


def _rows(rng: np.random.Generator, epoch: int, count: int) -> pa.Table:
    times = 5 * SECOND * epoch + np.sort(rng.integers(0, 5 * SECOND, count))
    columns = [pa.array(times).cast(SCHEMA.field("t").type), pa.array(rng.integers(0, KEYS, count))]
    return pa.table([*columns, pa.array(["x" * 100] * count)], schema=SCHEMA)
