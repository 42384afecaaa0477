"""Streams at three sites, one of which brings most rows; after some epochs it is another one."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pyarrow as pa

from midstream.inline import InlineJoin
from midstream.query.build import build_query
from midstream.query.query import Query
from midstream.query.site_description import SiteDescription
from midstream.testing.random_streams import SECOND, START, stream
from midstream.values import Micros

HOMES = {"a": "frankfurt", "b": "paris", "c": "oregon"}
FEW, MANY, KEYS = 20, 400, 4_000
EPOCHS_PER_PHASE = 12


def sited_query() -> Query:
    sites = SiteDescription().with_sink("frankfurt").with_link((), "1 ms", "100 kbit")
    for name, site in HOMES.items():
        sites = sites.with_stream(name, site)
    return build_query(
        [stream(name) for name in HOMES],
        ["a.k = b.k", "b.k = c.k"],
        default_window=Micros(40 * SECOND),
        select=["a.id", "b.id", "c.id", "c.v"],
        topology=sites.topology(HOMES),
    )


def epochs(phases: str) -> list[dict[str, pa.Table]]:
    """Epochs of ten seconds; in each phase the stream of its name brings most rows."""
    rng = np.random.default_rng(5)
    made = []
    for number in range(EPOCHS_PER_PHASE * len(phases)):
        busy = phases[number // EPOCHS_PER_PHASE]
        made.append({name: _rows(rng, number, MANY if name == busy else FEW) for name in HOMES})
    return made


def _rows(rng: np.random.Generator, epoch: int, count: int) -> pa.Table:
    times = START + epoch * 10 * SECOND + np.sort(rng.integers(0, 10 * SECOND, count))
    return pa.table(
        {
            "id": pa.array(epoch * 10_000 + np.arange(count)),
            "t": pa.array(times).cast(pa.timestamp("us", tz="UTC")),
            "k": pa.array(rng.integers(0, KEYS, count)),
            "k2": pa.array(["x"] * count),
            "v": pa.array(np.arange(count, dtype=np.int32)),
        }
    )


def link_bytes(join: InlineJoin) -> Counter[str]:
    """What went over each link in the epochs that are remembered."""
    total: Counter[str] = Counter()
    for progress in join.recentProgress:
        total.update({name: counts["bytes"] for name, counts in progress["links"].items()})
    return total
