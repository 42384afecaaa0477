"""Whether adapting pays on Spark: the workload of the paper on hybrid migration at 1000 times its rate.

With nine matches for each row, as in the paper, there would be 18 million results a second: here there are
fewer.
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

from benchmarks.migration_live import EPOCH, RATE, WARM, start, trigger_millis, write_input
from midstream.adapt.cost import work_in_units
from midstream.engine.work import WorkCounts

MATCHES = 2.5
"""Rows of each other stream's window that a row matches."""
EPOCHS_AFTER_CHANGE = 48
"""Four windows."""


def run_adaptive(adapt: str, plan: str, data: Path, out: Path) -> dict[str, Any]:
    """Run one query, and return what each of its epochs cost."""
    query = start(data, out, adapt=adapt, plan=plan)
    query.awaitTermination()
    epochs = query.recentProgress
    spark_ms = trigger_millis(query)
    work = [
        WorkCounts(
            probes=counts["probes"],
            candidates=counts["candidates"],
            intermediate_rows=counts["intermediateRows"],
            comparisons=counts["comparisons"],
            inserted_rows=counts["insertedRows"],
            sent_rows=counts["sentRows"],
        )
        for counts in (p["work"] for p in epochs)
    ]
    return {
        "ms": [spark_ms.get(p["batchId"], p["durationMs"]["total"]) for p in epochs],
        "units": [work_in_units(counts) for counts in work],
        "comparisons": [counts.comparisons for counts in work],
        "results": sum(p["numOutputRows"] for p in epochs),
        "plans": list(dict.fromkeys(p["plan"] for p in epochs)),
    }


def run(console: Console, folder: Path) -> dict[str, Any]:
    """The initial plan kept, adapting, and the last plan of adapting kept, as a table."""
    write_input(folder / "adaptive", MATCHES, EPOCHS_AFTER_CHANGE)
    runs = {"off": _spawn("off", "", folder), "auto": _spawn("auto", "", folder)}
    best = runs["auto"]["plans"][-1]
    runs["off, from that plan"] = _spawn("off", best, folder)
    rows = f"{6 * RATE:,} rows a second in batches of {EPOCH} s, {MATCHES} matches a row"
    table = Table(title=f"Adapting, live on Spark: six streams, {rows}")
    for column in ("adapt", "seconds before", "after", "units before", "after", "comparisons", "plans"):
        table.add_column(column, justify="left" if column in ("adapt", "plans") else "right")
    for name, record in runs.items():
        seconds, units = (
            [ms / 1000 for ms in _before_and_after(record, "ms")],
            _before_and_after(record, "units"),
        )
        cells = [*(f"{s:,.1f}" for s in seconds), *(f"{u / 1e6:,.0f} M" for u in units)]
        comparisons = f"{sum(record['comparisons']) / 1e9:,.1f} G"
        table.add_row(name, *cells, comparisons, "\n".join(record["plans"]))
    console.print(table)
    for measure in ("units", "comparisons"):
        kept, auto, _ = (sum(_before_and_after(record, measure)) for record in runs.values())
        before, _ = _before_and_after(runs["off"], measure)
        _, after = _before_and_after(runs["off, from that plan"], measure)
        free = before + after
        console.print(
            f"In {measure}: kept / adapting {kept / auto:.2f}, adapting / free switches {auto / free:.2f}."
        )
    unchanged = slice(WARM // 2, WARM)
    off, auto = (statistics.median(runs[name]["ms"][unchanged]) for name in ("off", "auto"))
    console.print(
        f"Before anything changes, a batch takes {off:.0f} ms without adapting, {auto:.0f} ms with it."
    )
    same = len({record["results"] for record in runs.values()}) == 1
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


def _before_and_after(record: dict[str, Any], measure: str) -> tuple[float, float]:
    """The sums over the epochs before the streams change and after."""
    return sum(record[measure][:WARM]), sum(record[measure][WARM:])


if __name__ == "__main__":
    adapt, plan, folder = sys.argv[1:]
    target = Path(folder) / "run"
    shutil.rmtree(target, ignore_errors=True)
    print(json.dumps(run_adaptive(adapt, plan, Path(folder) / "adaptive", target)))
    shutil.rmtree(target, ignore_errors=True)
