"""The query behind the golden checkpoints. It must never change: the checkpoints were made with it.

``python -m tests.golden.case FOLDER [STRATEGY]`` makes the checkpoint of the current format; with a strategy,
one in the middle of a migration by it, with ``aggregates`` one of a query with aggregates, with ``sites`` one
whose streams live at sites, while windows are copied and messages between sites are on their way.
"""

import shutil
import sys
from dataclasses import replace
from pathlib import Path

from midstream.aggregate.read_aggregation import read_aggregation
from midstream.aggregate.window import window
from midstream.inline import InlineJoin
from midstream.protocol.settings import Settings
from midstream.query.build import build_query
from midstream.query.site_description import SiteDescription
from midstream.sites.planner import SitePolicy
from midstream.storage.local import LocalStore
from midstream.testing import Shape, generate, stream
from midstream.values import Micros

SHAPE = Shape(rows=6, late=0.1, null_keys=0.05)
EPOCHS = generate(dict.fromkeys("abc", SHAPE), epochs=9, seed=4)
MADE_WITH = 6
"""Epochs that are in the checkpoint; the others are run on top of it."""
MIGRATES_AT = 4
PLAN, OTHER_PLAN = "(a b) c", "a (b c)"
SETTINGS = Settings(2, 8)
STREAMS = [stream(name, SHAPE) for name in "abc"]
PREDICATES = ["a.k = b.k", "b.k2 = c.k2", "a.v <> c.v"]
QUERY = build_query(
    STREAMS,
    PREDICATES,
    default_window=Micros(25_000_000),
    select=["a.id", "b.id", "c.id", "c.k2"],
)
AGGREGATES = "aggregates"
AGGREGATED_QUERY = build_query(
    STREAMS,
    PREDICATES,
    default_window=Micros(25_000_000),
    aggregation=read_aggregation(
        ["c.k2", window("20 seconds", "5 seconds")],
        [
            *("count(*) AS n", "sum(a.v) AS total", "avg(b.v) AS mean", "min(a.id) AS least"),
            *("stddev(c.v) AS spread", "median(a.v) AS middle", "count(DISTINCT b.v) AS different"),
            *("approx_count_distinct(a.id) AS about", "first(a.v) AS earliest", "last(a.v) AS latest"),
        ],
        STREAMS,
    ),
)


SITES = "sites"
SITED_PLAN = "a: [b, c], [0, 1]; b: [a, c], [1, 1]; c: [b, a], [0, 0]"
OTHER_SITED_PLAN = "a: [c, b], [1, 1]; b: [c, a], [0, 0]; c: [a, b], [0, 1]"
SITED_QUERY = replace(
    QUERY,
    topology=SiteDescription({"a": "x", "b": "y", "c": "z"}, partitions={"z": 2}).topology("abc"),
)
SITED_SETTINGS = replace(
    SETTINGS, adapt=True, sites=SitePolicy("greedy", "distributed"), rows_moved_at_once=0
)


def make(folder: str, kind: str | None = None) -> None:
    """Make a checkpoint of the current format."""
    asked, strategy = (AGGREGATED_QUERY, None) if kind == AGGREGATES else (QUERY, kind)
    plan, settings = PLAN, SETTINGS
    if kind == SITES:
        asked, plan, settings, strategy = SITED_QUERY, SITED_PLAN, SITED_SETTINGS, None
    query = InlineJoin(asked, plan, settings=settings, store=LocalStore(str(Path(folder).absolute())))
    for number, epoch in enumerate(EPOCHS[:MADE_WITH]):
        if number == MIGRATES_AT and kind == SITES:
            query.migrate(OTHER_SITED_PLAN)
        if number == MIGRATES_AT and strategy is not None:
            query.migrate(OTHER_PLAN, strategy, background="auto" if strategy == "hybrid" else "off")
        query.run_epoch(epoch, background_epochs=1)
    for name in ("leases", "temporary"):  # they say which machine made the checkpoint
        shutil.rmtree(Path(folder) / name, ignore_errors=True)


if __name__ == "__main__":
    make(*sys.argv[1:])
