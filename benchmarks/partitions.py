"""What engine partitions cost on Spark: epochs of the same rows with 2 to 512 of them, on two cores.

The driver's share is all that an epoch takes but for waiting for its Spark job.
"""

from __future__ import annotations

import json
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

from pyspark import RDD
from rich.console import Console
from rich.table import Table

from benchmarks.engines import MIDSTREAM_CONF, fingerprint, make_session
from benchmarks.report import steady_epochs
from benchmarks.workloads import CHAIN, CLIQUE, Workload

PARTITIONS = (2, 16, 64, 256, 512)
WORKLOADS = {
    w.name: w
    for w in (
        Workload("few-rows", "4-way clique, 8,000 rows an epoch", CLIQUE, 10_000, 2_000, 16, 5),
        Workload("many-rows", "4-way clique, 400,000 rows an epoch", CLIQUE, 500_000, 100_000, 12, 5),
        Workload("stages", "5-way chain over three keys, 8,000 rows an epoch", CHAIN, 8_000, 1_600, 16, 5),
    )
}


@contextmanager
def timed_jobs() -> Iterator[list[float]]:
    """How long the driver waits for each job meanwhile, in milliseconds."""
    millis: list[float] = []
    real = RDD.collect

    def collect(rdd: RDD[Any]) -> list[Any]:
        # What the driver sends to the JVM before the job is its own share.
        rdd._jrdd.rdd()
        begin = time.perf_counter()
        found = real(rdd)
        millis.append(1000 * (time.perf_counter() - begin))
        return found

    with patch.object(RDD, "collect", collect):
        yield millis


def run_query(work: Workload, partitions: int, data: Path, out: Path) -> dict[str, Any]:
    """Run one query, and return what each of its epochs took."""
    from midstream import Join

    spark = make_session(MIDSTREAM_CONF)
    join = Join(spark)
    for stream in work.streams:
        folder = str(data / stream)
        reader = spark.readStream.schema(spark.read.parquet(folder).schema).option("maxFilesPerTrigger", 1)
        join = join.stream(stream, reader.parquet(folder), time="ts")
    join = join.on(*(f"{left}.{key} = {right}.{key}" for left, right, key in work.equalities()))
    writer = join.within(f"{work.window} seconds").writeStream.format("parquet")
    writer = writer.option("path", out / "results").option("checkpointLocation", out / "checkpoint")
    writer = writer.option("partitions", partitions).option("adapt", "off")
    with timed_jobs() as jobs:
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination()
    progress = query.recentProgress
    epochs = [
        {"ms": p["durationMs"]["total"], "driver": p["durationMs"]["total"] - job}
        # Before the first epoch, a job looks at the workers.
        for p, job in zip(progress, jobs[-len(progress) :], strict=True)
    ]
    return {"epochs": epochs, **fingerprint(out / "results")}


def run(console: Console, folder: Path) -> dict[str, Any]:
    """All workloads with all numbers of partitions, as tables; results must not depend on the number."""
    runs: dict[str, dict[int, dict[str, Any]]] = {}
    for name, work in WORKLOADS.items():
        runs[name] = {}
        table = Table(title=f"Engine partitions on two cores: {work.about}")
        for column in ("partitions", "ms an epoch", "ratio", "driver's share, ms", "a partition, ms"):
            table.add_column(column, justify="right")
        for partitions in PARTITIONS:
            runs[name][partitions] = _spawn(name, partitions, folder)
        fewest = _median(runs[name][PARTITIONS[0]], "ms")
        for partitions, record in runs[name].items():
            millis, driver = _median(record, "ms"), _median(record, "driver")
            ratio, share = f"{millis / fewest:.1f}", f"{driver / partitions:.2f}"
            table.add_row(str(partitions), f"{millis:,.0f}", ratio, f"{driver:,.0f}", share)
        console.print(table)
        if len({(record["rows"], record["digest"]) for record in runs[name].values()}) > 1:
            raise SystemExit(f"{name}: the results depend on the number of partitions")
    return runs


def _median(record: dict[str, Any], figure: str) -> float:
    figures: list[float] = [epoch[figure] for epoch in steady_epochs(record)]
    return statistics.median(figures)


def _spawn(name: str, partitions: int, folder: Path) -> dict[str, Any]:
    print(f"partitions: {name}, {partitions} ...", file=sys.stderr, flush=True)
    command = [sys.executable, "-m", "benchmarks.partitions", name, str(partitions), str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{partitions} partitions failed on {name}:\n{done.stderr[-3000:]}")
    record: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return record


if __name__ == "__main__":
    argv_name, argv_partitions, argv_folder = sys.argv[1:]
    workload = WORKLOADS[argv_name]
    source, target = workload.write(Path(argv_folder) / "partitions"), Path(argv_folder) / "run"
    shutil.rmtree(target, ignore_errors=True)
    print(json.dumps(run_query(workload, int(argv_partitions), source, target)))
    shutil.rmtree(target, ignore_errors=True)
