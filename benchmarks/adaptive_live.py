"""Whether adapting pays on Spark: the task of the paper on hybrid migration at 1000 times its rate.

With all of its matches, nine for each row, there would be 18 million results a second; here a row has fewer.
"""

from __future__ import annotations

import json
import shutil
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.migration_live import EPOCH, RATE, WARM, start, write_input
from midstream.adapt.cost import work_in_units
from midstream.engine.work import WorkCounts

MATCHES = 2.5
AFTER = 48
"""Epochs after the values have changed: four windows."""


def run_adaptive(adapt: str, plan: str, data: Path, out: Path) -> dict[str, Any]:
    """One query; what its epochs cost."""
    query = start(data, out, adapt=adapt, plan=plan)
    query.awaitTermination()
    epochs = query.recentProgress
    spark_ms = {p["batchId"]: p["durationMs"]["triggerExecution"] for p in query._query.recentProgress}
    work = [
        WorkCounts(
            probes=done["probes"],
            candidates=done["candidates"],
            intermediate_rows=done["intermediateRows"],
            comparisons=done["comparisons"],
            inserted=done["insertedRows"],
            sent=done["sentRows"],
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
    """The plan kept, adapting, and the plan that adapting came to, as a table."""
    write_input(folder / "adaptive", MATCHES, AFTER)
    runs = {"off": _spawn("off", "", folder), "auto": _spawn("auto", "", folder)}
    best = runs["auto"]["plans"][-1]
    runs["off, from that plan"] = _spawn("off", best, folder)
    rows = f"{6 * RATE:,} rows a second in batches of {EPOCH} s, {MATCHES} matches a row"
    table = Table(title=f"Adapting, live on Spark: six streams, {rows}")
    for column in ("adapt", "seconds before", "after", "units before", "after", "comparisons", "plans"):
        table.add_column(column, justify="left" if column in ("adapt", "plans") else "right")
    for name, one in runs.items():
        seconds, units = ([part / 1000 for part in _parts(one, "ms")], _parts(one, "units"))
        figures = [*(f"{s:,.1f}" for s in seconds), *(f"{u / 1e6:,.0f} M" for u in units)]
        table.add_row(name, *figures, f"{sum(one['comparisons']) / 1e9:,.1f} G", "\n".join(one["plans"]))
    console.print(table)
    for what in ("units", "comparisons"):
        kept, auto, _ = (sum(_parts(one, what)) for one in runs.values())
        free = _parts(runs["off"], what)[0] + _parts(runs["off, from that plan"], what)[1]
        console.print(
            f"In {what}: kept / adapting {kept / auto:.2f}, adapting / free switches {auto / free:.2f}."
        )
    still = slice(WARM // 2, WARM)
    off, auto = (statistics.median(runs[name]["ms"][still]) for name in ("off", "auto"))
    console.print(
        f"Before anything changes, a batch takes {off:.0f} ms without adapting, {auto:.0f} ms with it."
    )
    same = len({one["results"] for one in runs.values()}) == 1
    console.print("All give the same number of results." if same else "They differ in their results!")
    return runs


def _spawn(adapt: str, plan: str, folder: Path) -> dict[str, Any]:
    print(f"adapting on Spark: {adapt} {plan} ...", file=sys.stderr, flush=True)
    command = [sys.executable, "-m", "benchmarks.adaptive_live", adapt, plan, str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{adapt} failed:\n{done.stderr[-3000:]}")
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def _parts(one: dict[str, Any], what: str) -> tuple[float, float]:
    """A figure before the values change, and after."""
    return sum(one[what][:WARM]), sum(one[what][WARM:])


if __name__ == "__main__":
    adapt, plan, folder = sys.argv[1:]
    target = Path(folder) / "run"
    shutil.rmtree(target, ignore_errors=True)
    print(json.dumps(run_adaptive(adapt, plan, Path(folder) / "adaptive", target)))
    shutil.rmtree(target, ignore_errors=True)
