"""`make bench`: all contestants on all workloads, in turns, in one run, as tables and a picture.

A ratio between contestants of the same run says something on any machine; seconds do not.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.console import Console

from benchmarks import (
    adaptive,
    adaptive_live,
    aggregates,
    aggregates_cpu,
    costs,
    estimates,
    memory_cost,
    memory_limit,
    migration,
    migration_epochs,
    migration_live,
    migration_together,
    partitions,
    picture,
    relocation,
    replacement,
    rescale,
    sites,
    skew,
    spilling,
    stability,
    strategy_choice,
)
from benchmarks.engines import ENGINES
from benchmarks.report import show
from benchmarks.workloads import WORKLOADS

EXPERIMENTS: dict[str, Callable[[Console, Path], dict[str, Any]]] = {
    "migration": lambda console, _folder: migration.run(console),
    "migration-epochs": lambda console, _folder: migration_epochs.run(console),
    "migration-live": migration_live.run,
    "migration-together": migration_together.run,
    "estimates": lambda console, _folder: estimates.run(console),
    "costs": lambda console, _folder: costs.run(console),
    "choices": lambda console, _folder: strategy_choice.run(console),
    "adaptive": lambda console, _folder: adaptive.run(console),
    "adaptive-live": adaptive_live.run,
    "stability": lambda console, _folder: stability.run(console),
    "partitions": partitions.run,
    "aggregates": aggregates.run,
    "aggregates-cpu": aggregates_cpu.run,
    "sites": lambda console, _folder: sites.run(console),
    "skew": lambda console, _folder: skew.run(console),
    "relocation": lambda console, _folder: relocation.run(console),
    "replacement": lambda console, _folder: replacement.run(console),
    "rescale": rescale.run,
    "memory": lambda console, _folder: spilling.run(console),
    "memory-cost": lambda console, _folder: memory_cost.run(console),
    "memory-limit": lambda console, _folder: memory_limit.run(console),
}


def main() -> int:
    """Run what was asked for; 1 if two contestants do not agree on the results."""
    parser = argparse.ArgumentParser(prog="benchmarks", description=__doc__)
    names = [*WORKLOADS, *EXPERIMENTS]
    parser.add_argument("workloads", nargs="*", default=names, help=", ".join(names))
    parser.add_argument("--only", nargs="+", choices=list(ENGINES), default=list(ENGINES))
    parser.add_argument("--repeat", type=int, default=1, help="rounds; contestants take turns in each")
    parser.add_argument("--json", type=Path, help="also write all figures to this file")
    parser.add_argument("--pictures", type=Path, help="also draw the figures into this folder")
    args = parser.parse_args()
    figures: dict[str, dict[str, list[dict[str, Any]]]] = {}
    console = Console()
    agree = True
    with tempfile.TemporaryDirectory(prefix="midstream-bench-") as folder:
        for name in (n for n in args.workloads if n in EXPERIMENTS):
            done = EXPERIMENTS[name](console, Path(folder))
            if args.pictures and name == "migration":
                args.pictures.mkdir(parents=True, exist_ok=True)
                first = {strategy: done[strategy] for strategy in migration.CONTESTANTS}
                picture.draw_migration(first, args.pictures / "migration.svg")
            if args.pictures and name == "replacement":
                args.pictures.mkdir(parents=True, exist_ok=True)
                picture.draw_replacement(done, args.pictures / "replacement.svg")
        for name in (n for n in args.workloads if n in WORKLOADS):
            runs = figures.setdefault(name, {})
            for _ in range(args.repeat):
                for contestant in (c for c in args.only if c not in WORKLOADS[name].skipped):
                    print(f"{name}: {contestant} ...", file=sys.stderr, flush=True)
                    runs.setdefault(contestant, []).append(_run(name, contestant, folder))
            agree &= show(name, runs, console)
            if args.json:
                args.json.write_text(json.dumps(figures))
    if args.pictures and figures:
        args.pictures.mkdir(parents=True, exist_ok=True)
        picture.draw_rates(figures, args.pictures / "performance.svg")
        picture.draw_profile(figures, args.pictures / "profile.svg")
    return 0 if agree else 1


def _run(name: str, contestant: str, folder: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "benchmarks.engines", name, contestant, folder]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{contestant} failed on {name}:\n{done.stderr[-3000:]}")
    figures: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return figures


if __name__ == "__main__":
    sys.exit(main())
