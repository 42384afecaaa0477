"""`make bench`: all contestants on all workloads, in turns, in one run, as a table of ratios.

A ratio between contestants of the same run says something on any machine; seconds do not.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.runs import RUNS
from benchmarks.workloads import WORKLOADS


def main() -> int:
    """Run what was asked for; 1 if two contestants do not agree on the results."""
    parser = argparse.ArgumentParser(prog="benchmarks", description=__doc__)
    parser.add_argument("workloads", nargs="*", default=list(WORKLOADS), help=", ".join(WORKLOADS))
    parser.add_argument("--only", nargs="+", choices=list(RUNS), default=list(RUNS))
    parser.add_argument("--repeat", type=int, default=1, help="rounds; contestants take turns in each")
    parser.add_argument("--json", type=Path, help="also write all figures to this file")
    args = parser.parse_args()
    figures: dict[str, dict[str, list[dict[str, Any]]]] = {}
    with tempfile.TemporaryDirectory(prefix="midstream-bench-") as folder:
        for name in args.workloads:
            for _ in range(args.repeat):
                for contestant in args.only:
                    print(f"{name}: {contestant} ...", file=sys.stderr, flush=True)
                    run = _run(name, contestant, folder)
                    figures.setdefault(name, {}).setdefault(contestant, []).append(run)
    if args.json:
        args.json.write_text(json.dumps(figures, indent=1))
    agree = [_report(name, runs) for name, runs in figures.items()]
    return 0 if all(agree) else 1


def _run(name: str, contestant: str, folder: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "benchmarks.runs", name, contestant, folder]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{contestant} failed on {name}:\n{done.stderr[-3000:]}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def rate(run: dict[str, Any]) -> float:
    """Rows a second in the steady state: the median of the second half of the epochs."""
    epochs = run["epochs"]
    steady = epochs[len(epochs) // 2 :]
    return float(statistics.median(epoch["rows"] / epoch["ms"] * 1000 for epoch in steady))


def _report(name: str, runs: dict[str, list[dict[str, Any]]]) -> bool:
    results = {(run["rows"], run["digest"]) for each in runs.values() for run in each}
    agree = len(results) == 1
    table = Table(title=f"{name}: {WORKLOADS[name].about}")
    for column in ("", "rows/s, steady", "spread", "ms an epoch", "x Midstream", "results"):
        table.add_column(column, justify="right")
    ours = statistics.median(map(rate, runs["midstream"])) if "midstream" in runs else None
    for contestant, each in runs.items():
        rates = sorted(map(rate, each))
        middle = statistics.median(rates)
        last = each[-1]["epochs"]
        millis = statistics.median(epoch["ms"] for epoch in last[len(last) // 2 :])
        table.add_row(
            contestant,
            f"{middle:,.0f}",
            f"{rates[0] / middle:.2f}-{rates[-1] / middle:.2f}",
            f"{millis:,.0f}",
            f"{middle / ours:.2f}" if ours else "",
            f"{each[0]['rows']:,}",
        )
    Console().print(table, "All contestants agree." if agree else "[red]The results differ.[/red]")
    return agree


if __name__ == "__main__":
    sys.exit(main())
