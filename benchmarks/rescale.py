"""How long a rescale holds a query up on Spark: epochs before, at and after 2 -> 16 partitions; and 512.

All epochs have as many rows. An ordinary epoch is one of those before, or of the last ones after: there is no
pause if the one that changes the number, and the next, take no longer than two of them.
"""

from __future__ import annotations

import json
import shutil
import statistics
import subprocess
import sys
import threading
import time
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

import psutil
from rich.console import Console
from rich.table import Table

from benchmarks.engines import MIDSTREAM_CONF, fingerprint, make_session
from benchmarks.workloads import Workload

AT = 7
"""The number of the epoch after which it is asked for."""
PAIR = Workload("pair", "2-way, 2,000 rows an epoch", dict.fromkeys("ab", ("k",)), 1_000, 1_000, 16, 5)
FEW = Workload("pair-few", "2-way, 200 rows an epoch", dict.fromkeys("ab", ("k",)), 100, 100, 3, 5)


def run_query(work: Workload, partitions: int, to: int | None, data: Path, out: Path) -> dict[str, Any]:
    """Run one query, which gets other partitions after an epoch, and return what each epoch took."""
    from midstream import Join

    spark = make_session(MIDSTREAM_CONF)
    join = Join(spark)
    for stream in work.streams:
        folder = str(data / stream)
        reader = spark.readStream.schema(spark.read.parquet(folder).schema).option("maxFilesPerTrigger", 1)
        join = join.stream(stream, reader.parquet(folder), time="ts")
    join = join.on(*(f"{left}.{key} = {right}.{key}" for left, right, key in work.equalities()))
    started = threading.Event()
    queries: list[Any] = []

    taken = []

    def listen(progress: Any) -> None:
        form = progress.to_dict()
        if "durationMs" not in form:
            return
        taken.append(_processor_seconds())
        if to is not None and form["batchId"] == AT:
            started.wait(60)
            queries[0].rescale(to)

    writer = join.within(f"{work.window} seconds").writeStream.format("parquet").addListener(listen)
    writer = writer.option("path", out / "results").option("checkpointLocation", out / "checkpoint")
    writer = writer.option("partitions", partitions).option("adapt", "off")
    begin = time.process_time()
    query = writer.trigger(availableNow=True).start()
    queries.append(query)
    started.set()
    query.awaitTermination()
    driver = time.process_time() - begin
    epochs = [p["durationMs"]["total"] for p in query.recentProgress]
    return {
        "epochs": epochs,
        "cpu": [round(1000 * (after - before)) for before, after in pairwise(taken)],
        "driver": 1000 * driver / len(epochs),
        "partitions": query.partitions,
        **fingerprint(out / "results"),
    }


def _processor_seconds() -> float:
    """What this process and all that it started have taken so far: the driver, its JVM and Python workers."""
    me, total = psutil.Process(), 0.0
    for process in (me, *me.children(recursive=True)):
        with suppress(psutil.NoSuchProcess, psutil.AccessDenied):
            times = process.cpu_times()
            total += times.user + times.system
    return total


def run(console: Console, folder: Path) -> dict[str, Any]:
    """The pause of a rescale, and what most partitions cost with few rows."""
    plain, rescaled = _spawn("pair", 2, None, folder), _spawn("pair", 2, 16, folder)
    few = {partitions: _spawn("pair-few", partitions, None, folder) for partitions in (2, 512)}
    for one, other in ((plain, rescaled), (few[2], few[512])):
        if (one["rows"], one["digest"]) != (other["rows"], other["digest"]):
            raise SystemExit("the results depend on the number of partitions")
    table = Table(title=f"2 -> 16 partitions after epoch {AT}: {PAIR.about}")
    for column in ("", "", "median before", "epochs from the change on"):
        table.add_column(column)
    for name, record in {"without": plain, "rescaled": rescaled}.items():
        # The first sample is taken when the first epoch has ended.
        for kind, millis in {"ms": record["epochs"][1:], "ms of processors": record["cpu"]}.items():
            before, after = millis[1:AT], millis[AT:]
            epochs = ", ".join(f"{ms:,.0f}" for ms in after)
            table.add_row(name, kind, f"{statistics.median(before):,.0f}", epochs)
    console.print(table)
    table = Table(title=f"Most partitions: {FEW.about}")
    for column in ("partitions", "epochs, ms", "driver's processor time an epoch, ms"):
        table.add_column(column)
    for partitions, record in few.items():
        epochs = ", ".join(f"{ms:,.0f}" for ms in record["epochs"])
        table.add_row(f"{partitions}", epochs, f"{record['driver']:,.0f}")
    console.print(table)
    return {"plain": plain, "rescaled": rescaled, "few": few}


def _spawn(name: str, partitions: int, to: int | None, folder: Path) -> dict[str, Any]:
    print(f"rescale: {name}, {partitions} -> {to} ...", file=sys.stderr, flush=True)
    command = [sys.executable, "-m", "benchmarks.rescale", name, str(partitions), str(to or 0), str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{name} failed in {partitions} partitions:\n{done.stderr[-3000:]}")
    record: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return record


if __name__ == "__main__":
    argv_name, argv_partitions, argv_to, argv_folder = sys.argv[1:]
    workload = {w.name: w for w in (PAIR, FEW)}[argv_name]
    source, target = workload.write(Path(argv_folder) / "rescale"), Path(argv_folder) / "run"
    shutil.rmtree(target, ignore_errors=True)
    print(json.dumps(run_query(workload, int(argv_partitions), int(argv_to) or None, source, target)))
    shutil.rmtree(target, ignore_errors=True)
