"""Whether a query leaves well alone: streams that never change, with plans that cost about the same.

The five streams are alike, so for each plan there are many that differ in names only. Which of them looks
best changes with every batch. One change of plan may pay, from the initial plan to one of the best kind; each
further one is for nothing.
"""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
from rich.console import Console
from rich.table import Table

from midstream.inline import InlineJoin
from midstream.protocol.settings import Settings
from midstream.query.build import build_query
from midstream.query.query import Query
from midstream.query.stream import ColumnRef, Stream
from midstream.values import MICROS_PER_SECOND, Micros

NAMES = "abcde"
RATE, KEYS, WINDOW = 4.0, 20, 8
EPOCH_SECONDS, EPOCHS, SEEDS = 2.0, 300, 50
SCHEMA = pa.schema([("id", pa.int64()), ("k", pa.int64()), ("ts", pa.timestamp("us", "UTC"))])


def query() -> Query:
    """A clique."""
    return build_query(
        [Stream(name, SCHEMA, ColumnRef(name, ("ts",)), Micros(0)) for name in NAMES],
        [f"{a}.k = {b}.k" for a, b in pairwise(NAMES)],
        default_window=Micros(WINDOW * MICROS_PER_SECOND),
        select=["a.id"],
    )


def epoch(random: np.random.Generator, number: int) -> dict[str, pa.Table]:
    """The rows of an epoch, by stream."""
    tables = {}
    for name in NAMES:
        rows = int(random.poisson(RATE * EPOCH_SECONDS))
        times = np.sort(random.uniform(number, number + 1, rows) * EPOCH_SECONDS * MICROS_PER_SECOND)
        columns = [np.arange(rows), random.integers(0, KEYS, rows), times.astype(np.int64).view("M8[us]")]
        tables[name] = pa.table(columns, schema=SCHEMA)
    return tables


def changes(seed: int) -> list[int]:
    """The epochs in which the plan of a run was changed."""
    random = np.random.default_rng(seed)
    join = InlineJoin(query(), settings=Settings(1, 1, adapt=True))
    begun = []
    for number in range(EPOCHS):
        before = join.manifest.migrations
        join.run_epoch(epoch(random, number), background_epochs=1)
        begun += [number] if join.manifest.migrations > before else []
    return begun


def run(console: Console) -> dict[str, Any]:
    """All seeds, as a table."""
    runs = [changes(seed) for seed in range(SEEDS)]
    counts = Counter(map(len, runs))
    title = f"Five streams that never change, {SEEDS} runs of {EPOCHS} batches"
    table = Table("changes of plan", "runs", title=title)
    for count, seeds in sorted(counts.items()):
        table.add_row(str(count), str(seeds))
    console.print(table)
    firsts = sorted(begun[0] for begun in runs if begun)
    console.print(f"The first one came after {firsts[len(firsts) // 2] if firsts else '-'} batches (median).")
    return {"changes": dict(counts), "firsts": firsts}


if __name__ == "__main__":
    run(Console())
