"""Queries that migrate at the same time in one session: each as if it were alone on a core of its own.

First each query runs alone, on one core: Spark, its driver and its workers together. Then two run at the same
time, on two cores. The ratio says how much they are in each other's way.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from rich.console import Console
from rich.table import Table

from benchmarks.engines import MIDSTREAM_CONF, make_session
from benchmarks.migration_epochs import NAMES, NEW, OLD, Setting

SETTING = Setting(epochs_per_window=8, rows=20_000, measured=16)
WARM_UP = 12
"""Epochs before the migration."""
PAIRS = (("moving_state", "parallel_track"), ("hybrid", "moving_state"), ("parallel_track", "hybrid"))


def write_input(folder: Path) -> None:
    """A file per stream and epoch."""
    for number in range(WARM_UP + SETTING.measured):
        for name, table in SETTING.epoch(number).items():
            (folder / name).mkdir(parents=True, exist_ok=True)
            pq.write_table(table, folder / name / f"{number:05d}.parquet")


def start(spark: Any, data: Path, out: Path) -> Any:
    """Start a query with one engine partition."""
    from midstream import Join

    join = Join(spark)
    for name in NAMES:
        reader = spark.readStream.schema("id long, k long, ts timestamp").option("maxFilesPerTrigger", 1)
        join = join.stream(name, reader.parquet(str(data / name)), time="ts")
    join = join.on(*(f"{a}.k = {b}.k" for a, b in pairwise(NAMES)))
    window = f"{SETTING.epochs_per_window} seconds"
    writer = join.within(window).writeStream.format("parquet").option("path", out / "results")
    writer = writer.option("checkpointLocation", out / "state").option("plan", OLD)
    return writer.options(adapt="off", partitions=1).trigger(availableNow=True).start()


def run_queries(strategies: list[str], data: Path, out: Path) -> dict[str, dict[str, float]]:
    """Queries that migrate at the same time; how long the batches of each take, and its results."""
    cores = len(strategies)
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:cores])
    spark = make_session(MIDSTREAM_CONF, cores)
    queries = {strategy: start(spark, data, out / strategy) for strategy in strategies}
    waiting = dict(queries)
    seen: dict[str, dict[int, Any]] = {strategy: {} for strategy in strategies}
    while any(query.isActive for query in queries.values()):
        time.sleep(0.02)
        for strategy, query in queries.items():
            seen[strategy] |= {p["batchId"]: p for p in query.recentProgress}
        if waiting and all(max(batches, default=-1) >= WARM_UP - 2 for batches in seen.values()):
            for strategy, query in waiting.items():
                query.migrate(NEW, strategy, background="off")
            waiting = {}
    for strategy, query in queries.items():
        query.awaitTermination()
        seen[strategy] |= {p["batchId"]: p for p in query.recentProgress}
    # The first batches are those of a JVM that is still warming up.
    return {
        strategy: {
            "seconds": sum(p["durationMs"]["total"] for n, p in batches.items() if n >= WARM_UP // 2) / 1000,
            "results": sum(p["numOutputRows"] for p in batches.values()),
        }
        for strategy, batches in seen.items()
    }


def run(console: Console, folder: Path) -> dict[str, Any]:
    """Each strategy alone and in pairs, as a table."""
    write_input(folder / "together")
    alone = {name: _in_process([name], folder)[name] for name in dict.fromkeys(n for p in PAIRS for n in p)}
    table = Table(title="Queries that migrate in one session, a core each")
    for column in ("", "with", "alone", "together", "ratio"):
        table.add_column(column, justify="right" if column not in ("", "with") else "left")
    figures = {}
    for pair in PAIRS:
        together = _in_process(list(pair), folder)
        for name, other in (pair, pair[::-1]):
            if together[name]["results"] != alone[name]["results"]:
                raise SystemExit(f"{name} has other results beside {other} than alone")
            before, now = alone[name]["seconds"], together[name]["seconds"]
            figures[f"{name} with {other}"] = now / before
            table.add_row(name, other, f"{before:.1f} s", f"{now:.1f} s", f"{now / before:.2f} x")
    console.print(table)
    return figures


def _in_process(strategies: list[str], folder: Path) -> dict[str, Any]:
    print(f"migrating: {', '.join(strategies)} ...", file=sys.stderr, flush=True)
    command = [sys.executable, "-m", "benchmarks.migration_together", str(folder), *strategies]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{', '.join(strategies)} failed:\n{done.stderr[-3000:]}")
    figures: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return figures


if __name__ == "__main__":
    if len(sys.argv) == 1:
        run(Console(), Path(tempfile.mkdtemp(prefix="midstream-together-")))
    else:
        target = Path(sys.argv[1]) / "run"
        shutil.rmtree(target, ignore_errors=True)
        print(json.dumps(run_queries(sys.argv[2:], Path(sys.argv[1]) / "together", target)))
        shutil.rmtree(target, ignore_errors=True)
