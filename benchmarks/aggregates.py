"""What aggregates cost on Spark: epochs of the 4-way clique with and without a group-by of 1,000 keys.

Both compute the same results of the join from the same rows and columns; without aggregates these are written
as Parquet. They run in turns, and the first half of the epochs does not count.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from rich.console import Console
from rich.table import Table

from benchmarks.engines import MIDSTREAM_CONF, make_session
from benchmarks.report import steady_epochs
from benchmarks.workloads import CLIQUE, Workload

GROUPS = 1_000
ROUNDS = 2
WORK = Workload("clique", "4-way clique, 200 k rows an epoch", CLIQUE, 500_000, 50_000, 24, 5, 1)
WAYS: dict[str, tuple[str, ...]] = {
    "without": (),
    "count, sum": ("count(*) AS n", "sum(b.v) AS total"),
    "count, sum, avg, min, max, stddev": (
        "count(*) AS n",
        "sum(b.v) AS total",
        "avg(c.v) AS mean",
        "min(c.v) AS least",
        "max(d.v) AS most",
        "stddev(d.v) AS deviation",
    ),
    "count, median": ("count(*) AS n", "median(b.v) AS middle"),
}


def write_input(root: Path) -> Path:
    """The input of the workload, where ``g`` has one of a thousand values."""
    folder = WORK.write(root)
    if not (folder / "grouped").exists():
        for path in folder.glob("*/*.parquet"):
            rows = pq.read_table(path)
            groups = pc.bit_wise_and(rows.column("v"), pa.scalar(1023)).to_numpy() % GROUPS
            times = path.stat().st_atime, path.stat().st_mtime
            pq.write_table(rows.append_column("g", pa.array(groups)), path)
            # Spark reads files in the order of their times.
            os.utime(path, times)
        (folder / "grouped").touch()
    return folder


def run_query(way: str, data: Path, out: Path) -> dict[str, Any]:
    """Run one query, and return what each of its epochs took."""
    from midstream import Join, window

    spark = make_session(MIDSTREAM_CONF)
    join = Join(spark)
    for stream in WORK.streams:
        folder = str(data / stream)
        reader = spark.readStream.schema(spark.read.parquet(folder).schema).option("maxFilesPerTrigger", 1)
        join = join.stream(stream, reader.parquet(folder), time="ts")
    join = join.on(*(f"{left}.{key} = {right}.{key}" for left, right, key in WORK.equalities()))
    join = join.within(f"{WORK.window} seconds")
    if WAYS[way]:
        join = join.groupBy("a.g", window("10 seconds", "1 second")).agg(*WAYS[way])
    else:
        join = join.select("a.g", "b.v AS b", "c.v AS c", "d.v AS d")
    writer = join.writeStream.format("parquet").option("path", out / "results").option("adapt", "off")
    query = writer.option("checkpointLocation", out / "checkpoint").trigger(availableNow=True).start()
    query.awaitTermination()
    # Epochs without a batch, in which the last windows leave, are not what is compared.
    epochs = [{"ms": p["durationMs"]["total"]} for p in query.recentProgress if p["numInputRows"]]
    rows = sum(pq.read_metadata(path).num_rows for path in (out / "results").glob("*.parquet"))
    return {"epochs": epochs, "rows": rows}


def run(console: Console, folder: Path) -> dict[str, Any]:
    """All ways in turns, as a table."""
    runs: dict[str, list[dict[str, Any]]] = {way: [] for way in WAYS}
    for _ in range(ROUNDS):
        for way in WAYS:
            runs[way].append(_spawn(way, folder))
    plain = _median(runs["without"])
    table = Table(title=f"Aggregates by {GROUPS:,} keys, windows of 10 s every second: {WORK.about}")
    for column in ("aggregates", "ms an epoch", "ratio", "rows written"):
        table.add_column(column, justify="right")
    for way, records in runs.items():
        millis = _median(records)
        table.add_row(way, f"{millis:,.0f}", f"{millis / plain:.2f}", f"{records[0]['rows']:,}")
    console.print(table)
    return {way: {"ms": _median(records), "runs": records} for way, records in runs.items()}


def _median(records: list[dict[str, Any]]) -> float:
    millis: list[float] = [epoch["ms"] for record in records for epoch in steady_epochs(record)]
    return statistics.median(millis)


def _spawn(way: str, folder: Path) -> dict[str, Any]:
    print(f"aggregates: {way} ...", file=sys.stderr, flush=True)
    command = [sys.executable, "-m", "benchmarks.aggregates", way, str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{way} failed:\n{done.stderr[-3000:]}")
    record: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return record


if __name__ == "__main__":
    argv_way, argv_folder = sys.argv[1:]
    source, target = write_input(Path(argv_folder) / "aggregates"), Path(argv_folder) / "run"
    shutil.rmtree(target, ignore_errors=True)
    print(json.dumps(run_query(argv_way, source, target)))
    shutil.rmtree(target, ignore_errors=True)
