"""What aggregates cost the processor: epochs of the 4-way clique with and without a group-by of 1,000 keys.

The same rows go to all queries, in turns, epoch by epoch, in this process. What comes out is staged and
published as Parquet, without aggregates as well; the time for that is also told apart. The first half of the
epochs does not count. Only ratios say something.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from rich.console import Console
from rich.table import Table

from benchmarks.aggregates import GROUPS, WAYS
from benchmarks.workloads import SECOND
from midstream.aggregate.read_aggregation import read_aggregation
from midstream.aggregate.window import window
from midstream.inline import InlineJoin
from midstream.protocol.settings import Settings
from midstream.query.build import build_query
from midstream.query.query import Query
from midstream.query.stream import ColumnRef, Stream
from midstream.state.manifest import OutputFile
from midstream.storage.output_table import FragmentRunId, OutputTable
from midstream.values import Micros

ROWS, KEYS, EPOCHS, PARTITIONS = 50_000, 500_000, 40, 2
SCHEMA = pa.schema(
    [("k", pa.int64()), ("ts", pa.timestamp("us", "UTC")), ("v", pa.int64()), ("g", pa.int64())]
)
STREAMS = [Stream(name, SCHEMA, ColumnRef(name, ("ts",)), Micros(0)) for name in "abcd"]
UPDATES = ", in update mode"


@dataclass
class Sink:
    """A folder of Parquet files, and how long it took to write them."""

    table: OutputTable
    seconds: float = 0.0

    def stage(self, task: FragmentRunId, rows: pa.Table) -> OutputFile:
        """Write a file where no reader looks."""
        begin = time.process_time()
        output = self.table.stage(task, rows)
        self.seconds += time.process_time() - begin
        return output

    def publish(self, outputs: Sequence[OutputFile]) -> None:
        """Rename files."""
        self.table.publish(outputs)

    def sweep(self) -> None:
        """Nothing is left over."""


@dataclass
class Contestant:
    """A query that runs, and what each of its epochs took."""

    join: InlineJoin
    sink: Sink
    seconds: list[float] = field(default_factory=list)
    writing: list[float] = field(default_factory=list)
    rows: int = 0

    def run_epoch(self, epoch: dict[str, pa.Table]) -> None:
        """Run an epoch, and measure it."""
        begin, self.sink.seconds = time.process_time(), 0.0
        self.rows += self.join.run_epoch(epoch).num_rows
        self.seconds.append(time.process_time() - begin)
        self.writing.append(self.sink.seconds)


def epochs() -> Iterator[dict[str, pa.Table]]:
    """A second of event time each."""
    random = np.random.default_rng(0)
    for number in range(EPOCHS):
        tables = {}
        for stream in STREAMS:
            times = np.sort(random.integers(number * SECOND, (number + 1) * SECOND, ROWS))
            values = random.integers(0, 1 << 40, ROWS)
            columns = [random.integers(0, KEYS, ROWS), times, values, (values & 1023) % GROUPS]
            tables[stream.name] = pa.table(
                [pa.array(c).cast(f.type) for c, f in zip(columns, SCHEMA, strict=True)], schema=SCHEMA
            )
        yield tables


def query(way: str) -> Query:
    """The join of all streams, and one way to aggregate it."""
    calls = WAYS[way.removesuffix(UPDATES)]
    on, within = [f"a.k = {name}.k" for name in "bcd"], Micros(5 * SECOND)
    if not calls:
        select = ["a.g", "b.v AS b", "c.v AS c", "d.v AS d"]
        return build_query(STREAMS, on, default_window=within, select=select)
    asked = read_aggregation(["a.g", window("10 seconds", "1 second")], calls, STREAMS)
    asked = replace(asked, is_update_mode=way.endswith(UPDATES))
    return build_query(STREAMS, on, default_window=within, aggregation=asked)


def run(console: Console, folder: Path) -> dict[str, Any]:
    """All ways in turns, as a table."""
    runs = {}
    for number, way in enumerate([*WAYS, f"count, sum{UPDATES}"]):
        sink = Sink(OutputTable("results", str(folder / f"way-{number}"), "bench"))
        runs[way] = Contestant(InlineJoin(query(way), settings=Settings(PARTITIONS, 512), sink=sink), sink)
    for number, epoch in enumerate(epochs()):
        for way in list(runs)[:: 1 if number % 2 else -1]:
            runs[way].run_epoch(epoch)
    plain = runs["without"]
    table = Table(title=f"Processor time of aggregates by {GROUPS:,} keys, windows of 10 s every second")
    for column in ("aggregates", "ms an epoch", "ratio", "ratio without writing", "rows written"):
        table.add_column(column, justify="right")
    figures = {}
    for way, done in runs.items():
        ms, ratio = 1000 * statistics.median(_counted(done)), _ratio(_counted(done), _counted(plain))
        alone = _ratio(_joined(done), _joined(plain))
        table.add_row(way, f"{ms:.0f}", f"{ratio:.3f}", f"{alone:.3f}", f"{done.rows:,}")
        figures[way] = {"ms": ms, "ratio": ratio, "ratio without writing": alone}
    console.print(table)
    return figures


def _counted(done: Contestant) -> list[float]:
    return done.seconds[EPOCHS // 2 :]


def _joined(done: Contestant) -> list[float]:
    return [a - b for a, b in zip(_counted(done), done.writing[EPOCHS // 2 :], strict=True)]


def _ratio(seconds: list[float], plain: list[float]) -> float:
    """Of each epoch, and of these the median: other processes disturb neighbours alike."""
    return statistics.median(a / b for a, b in zip(seconds, plain, strict=True))
