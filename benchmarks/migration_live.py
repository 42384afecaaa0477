"""What a migration is like for those who read the results: live queries on Spark, one for each strategy.

The task of the paper on hybrid migration (see ``benchmarks/migration.py``) at 1000 times its rate. With all
of its matches per row the states would have some 60 million rows; here a row has fewer.
"""

from __future__ import annotations

import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql.streaming.query import StreamingQuery
from rich.console import Console
from rich.table import Table

from benchmarks.engines import MIDSTREAM_CONF, make_session
from benchmarks.migration import CONTESTANTS, SCHEMA, right_deep
from benchmarks.workloads import SECOND

NAMES = tuple("ABCDEF")
RATE, WINDOW, EPOCH = 1000, 180, 15
WARM, MEASURED = 24, 18
"""Epochs before the values change and the migration begins, and after."""
MATCHES = 0.9
"""Rows of another stream in the window that a row matches."""


def trigger_millis(query: StreamingQuery) -> dict[int, int]:
    """How long each batch took by Spark's own progress, instead of that of the join."""
    progress = StreamingQuery(query._jsq).recentProgress
    return {p["batchId"]: p["durationMs"]["triggerExecution"] for p in progress}


def write_input(folder: Path, matches: float = MATCHES, after: int = MEASURED) -> None:
    """A file per stream and epoch; ``after`` epochs come after the values have changed."""
    if (folder / "done").exists():
        return
    random = np.random.default_rng(3)
    count = RATE * EPOCH
    domain = round(RATE * WINDOW / matches)
    for epoch in range(WARM + after):
        rare = NAMES[0] if epoch < WARM else NAMES[-1]
        for name in NAMES:
            times = np.sort(random.integers(epoch * EPOCH * SECOND, (epoch + 1) * EPOCH * SECOND, count))
            keys = random.integers(0, domain, count)
            if name == rare:
                keys = np.where(random.random(count) < 0.05, keys, random.integers(1 << 40, 1 << 60, count))
            table = pa.table([np.arange(count), keys, times.view("datetime64[us]")], schema=SCHEMA)
            (folder / name).mkdir(parents=True, exist_ok=True)
            pq.write_table(table, folder / name / f"{epoch:05d}.parquet")
    (folder / "done").touch()


def start(data: Path, out: Path, *, adapt: str, plan: str = "") -> Any:
    """Start the query on Spark, from a plan or the default one."""
    from midstream import Join

    spark = make_session(MIDSTREAM_CONF)
    join = Join(spark)
    for name in NAMES:
        reader = spark.readStream.schema("id long, k long, ts timestamp").option("maxFilesPerTrigger", 1)
        join = join.stream(name, reader.parquet(str(data / name)), time="ts")
    join = join.on(*(f"{a}.k = {b}.k" for a, b in pairwise(NAMES)))
    writer = join.within(f"{WINDOW} seconds").writeStream.format("parquet").option("path", out / "results")
    writer = writer.option("adapt", adapt).option("checkpointLocation", out / "state")
    if plan:
        writer = writer.option("plan", plan)
    return writer.trigger(availableNow=True).start()


def run_live(contestant: str, data: Path, out: Path) -> dict[str, Any]:
    """One query that migrates when the values change; its epochs as a reader sees them."""
    strategy, background = CONTESTANTS[contestant]
    query = start(data, out, adapt="off")
    requested = False
    seen: dict[int, dict[str, Any]] = {}
    while query.isActive:
        time.sleep(0.02)
        seen |= {p["batchId"]: p for p in query.recentProgress}
        if not requested and max(seen, default=-1) >= WARM - 1:
            query.migrate(str(right_deep(NAMES)), strategy, background="auto" if background else "off")
            requested = True
    query.awaitTermination()
    seen |= {p["batchId"]: p for p in query.recentProgress}
    spark_ms = trigger_millis(query)
    return {
        "epochs": [
            {
                "ms": spark_ms.get(n, p["durationMs"]["total"]),
                "results": p["numOutputRows"],
                "migration": (p["migration"] or {}).get("phase"),
            }
            for n, p in sorted(seen.items())
        ]
    }


@dataclass(frozen=True)
class ReaderDelays:
    """What a reader of the results notices."""

    steady: float
    gap: float
    delay: float
    migration_epochs: int


def measure_delays(run: dict[str, Any], results_by_epoch: list[int]) -> ReaderDelays:
    """``results_by_epoch`` is how many results each epoch finds; a strategy may give them out later."""
    epochs = run["epochs"]
    steady = statistics.median(e["ms"] for e in epochs[WARM - 8 : WARM])
    ends = np.cumsum([e["ms"] for e in epochs])
    starts = ends - [e["ms"] for e in epochs]
    given = [float(end) for end, e in zip(ends, epochs, strict=True) if e["results"]]
    after = [t for t in given if t >= ends[WARM - 2]]
    gap = max(b - a for a, b in pairwise(after))
    # Results leave in the order in which they were found: the n-th found is the n-th given out.
    found, out = np.cumsum(results_by_epoch), np.cumsum([e["results"] for e in epochs])
    numbers = np.arange(found[WARM - 1], found[-1], max(1, int(found[-1] - found[WARM - 1]) // 20_000))
    when_found = starts[np.searchsorted(found, numbers, side="right")]
    when_given = ends[np.minimum(np.searchsorted(out, numbers, side="right"), len(ends) - 1)]
    delay = float(np.percentile(when_given - when_found, 99))
    return ReaderDelays(steady, gap, delay, sum(e["migration"] is not None for e in epochs))


def run(console: Console, folder: Path) -> dict[str, Any]:
    """All strategies in turn, as a table."""
    write_input(folder / "live")
    runs = {}
    for name in CONTESTANTS:
        print(f"migration on Spark: {name} ...", file=sys.stderr, flush=True)
        command = [sys.executable, "-m", "benchmarks.migration_live", name, str(folder)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise SystemExit(f"{name} failed:\n{done.stderr[-3000:]}")
        runs[name] = json.loads(done.stdout.splitlines()[-1])
    totals = {sum(e["results"] for e in one["epochs"]) for one in runs.values()}
    results_by_epoch = [e["results"] for e in runs["moving_state"]["epochs"]]
    table = Table(title="Migration, live on Spark: six streams, 6,000 rows a second, 3 minutes")
    columns = ("", "steady epoch", "longest gap", "99 % of results within", "gap / steady", "epochs")
    for column in columns:
        table.add_column(column, justify="right" if column else "left")
    for name, one in runs.items():
        seen = measure_delays(one, results_by_epoch)
        ratio = seen.gap / seen.steady
        millis = [f"{value:,.0f} ms" for value in (seen.steady, seen.gap, seen.delay)]
        table.add_row(name, *millis, f"{ratio:.2f} x", str(seen.migration_epochs))
    console.print(table)
    console.print("All give the same number of results." if len(totals) == 1 else f"They differ: {totals}")
    return runs


if __name__ == "__main__":
    if len(sys.argv) == 1:
        run(Console(), Path(tempfile.mkdtemp(prefix="midstream-live-")))
    else:
        target = Path(sys.argv[2]) / "run"
        shutil.rmtree(target, ignore_errors=True)
        print(json.dumps(run_live(sys.argv[1], Path(sys.argv[2]) / "live", target)))
        shutil.rmtree(target, ignore_errors=True)
