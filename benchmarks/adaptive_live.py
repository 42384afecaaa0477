"""Whether adapting pays on Spark: the task of the paper on hybrid migration at 1000 times its rate.

With all of its matches, nine for each row, there would be 18 million results a second; here a row has fewer.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.live import EPOCH, RATE, WARM, start, write_input
from midstream.adapt.cost import work_in_units
from midstream.engine.node import WorkDone

MATCHES = 2.5
AFTER = 48
"""Epochs after the values have changed: four windows."""


def run_adaptive(adapt: str, data: Path, out: Path) -> dict[str, Any]:
    """One query; what its epochs cost."""
    query = start(data, out, adapt=adapt)
    query.awaitTermination()
    epochs = query.recentProgress
    spark_ms = {p["batchId"]: p["durationMs"]["triggerExecution"] for p in query._query.recentProgress}
    work = [
        WorkDone(
            done["probes"],
            done["candidates"],
            done["intermediateRows"],
            done["comparisons"],
            done["insertedRows"],
            done["sentRows"],
        )
        for done in (p["work"] for p in epochs)
    ]
    return {
        "ms": [spark_ms.get(p["batchId"], p["durationMs"]["total"]) for p in epochs],
        "units": [work_in_units(done) for done in work],
        "comparisons": [done.comparisons for done in work],
        "results": sum(p["numOutputRows"] for p in epochs),
        "plans": list(dict.fromkeys(p["plan"] for p in epochs)),
    }


def run(console: Console, folder: Path) -> dict[str, Any]:
    """Both contestants in turn, as a table."""
    write_input(folder / "adaptive", MATCHES, AFTER)
    runs: dict[str, dict[str, Any]] = {}
    for adapt in ("off", "auto"):
        print(f"adapting on Spark: {adapt} ...", file=sys.stderr, flush=True)
        command = [sys.executable, "-m", "benchmarks.adaptive_live", adapt, str(folder)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise SystemExit(f"{adapt} failed:\n{done.stderr[-3000:]}")
        runs[adapt] = json.loads(done.stdout.splitlines()[-1])
    rows = f"{6 * RATE:,} rows a second in batches of {EPOCH} s, {MATCHES} matches a row"
    table = Table(title=f"Adapting, live on Spark: six streams, {rows}")
    for column in (
        "adapt",
        "seconds before",
        "after the change",
        "units before",
        "after",
        "comparisons",
        "plans",
    ):
        table.add_column(column, justify="left" if column in ("adapt", "plans") else "right")
    for adapt, one in runs.items():
        parts = [sum(one["ms"][:WARM]) / 1000, sum(one["ms"][WARM:]) / 1000]
        units = [sum(one["units"][:WARM]) / 1e6, sum(one["units"][WARM:]) / 1e6]
        figures = [*(f"{p:,.1f}" for p in parts), *(f"{u:,.0f} M" for u in units)]
        table.add_row(adapt, *figures, f"{sum(one['comparisons']) / 1e9:,.0f} G", "\n".join(one["plans"]))
    console.print(table)
    same = runs["off"]["results"] == runs["auto"]["results"]
    console.print("Both give the same number of results." if same else "They differ in their results!")
    return runs


if __name__ == "__main__":
    target = Path(sys.argv[2]) / "run"
    shutil.rmtree(target, ignore_errors=True)
    print(json.dumps(run_adaptive(sys.argv[1], Path(sys.argv[2]) / "adaptive", target)))
    shutil.rmtree(target, ignore_errors=True)
