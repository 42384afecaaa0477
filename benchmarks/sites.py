"""`make bench ARGS=sites`: what the paper on sites measured, and what it did not, counted or simulated."""

from __future__ import annotations

from typing import Any

from rich.console import Console

from benchmarks import sites_adaptive, sites_bytes, sites_plans, sites_queries


def run(console: Console) -> dict[str, Any]:
    """All of it, in about a minute."""
    return {
        "gaps": sites_plans.measure_gaps(console),
        "changes": sites_plans.measure_changes(console),
        "adaptive": sites_adaptive.run(console),
        "bytes": sites_bytes.run(console),
        "queries": sites_queries.run(console),
    }
