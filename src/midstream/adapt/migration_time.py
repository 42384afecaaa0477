"""How long a migration takes by each strategy: the papers' models, with costs that are estimated here.

The models know of a plan only how long it takes for a row. That follows from what the plan costs in units, if
a unit takes as long as was learned, and if there is a core for each engine partition.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import inf

from midstream.adapt.estimate import Estimator
from midstream.adapt.migration_cost import MigrationCost, migration_costs
from midstream.adapt.plan_cost import layout_cost
from midstream.adapt.statistics import window_or_recent
from midstream.migration.paper_models import (
    BlackBoxModel,
    ghm_duration,
    gms_duration,
    gms_spike_length,
    gpt_duration,
)
from midstream.migration.strategies import STRATEGIES
from midstream.plan.build_layout import build_layout
from midstream.plan.layout import Layout
from midstream.plan.tree import Plan


def describe_times(old: Layout, plan: Plan, estimator: Estimator, partitions: int) -> Iterator[str]:
    """How long a change to a plan takes, by each strategy that would come to an end."""
    migrations = migration_costs(old, plan, estimator)
    boxes = black_boxes(old, plan, estimator, partitions, migrations)
    for migration in migrations:
        if not migration.isolated:
            name = f"{migration.strategy}{' with background work' if migration.background else ''}"
            yield f"{name}: {_describe(migration, boxes)}"


def black_boxes(
    old: Layout, plan: Plan, estimator: Estimator, partitions: int, migrations: list[MigrationCost]
) -> BlackBoxModel:
    """The two plans of a migration as the models see them."""
    seconds = estimator.statistics.calibration.seconds_per_unit / partitions
    names = estimator.query.names
    rows = sum(estimator.rate((name,)) for name in names)
    window = window_or_recent(estimator.query, estimator.statistics.elapsed)
    new = build_layout(estimator.query, plan)
    costs = (layout_cost(layout, estimator, partitions) for layout in (old, new))
    rebuilding = next(m.work for m in migrations if not STRATEGIES[m.strategy].runs_old_plan)
    t_old, t_new = (cost * seconds / rows for cost in costs)
    return BlackBoxModel(
        tau=rows / len(names),
        tau_before=rows / len(names),
        n=len(names),
        w=window,
        t_old=t_old,
        t_new=t_new,
        t_new_before=rebuilding * seconds / (rows * window),
    )


def _describe(migration: MigrationCost, boxes: BlackBoxModel) -> str:
    if not STRATEGIES[migration.strategy].runs_old_plan:
        catching_up = gms_spike_length(boxes)
        then = f"then {_seconds(catching_up)} to catch up" if catching_up < inf else "and it never catches up"
        return f"{_seconds(gms_duration(boxes))} without results, {then}"
    # If the new plan lacks nothing, there is nothing to wait for.
    longest = min(gpt_duration(boxes), migration.seconds)
    if migration.background:
        return f"from {_seconds(min(ghm_duration(boxes), longest))} to {_seconds(longest)}"
    return _seconds(longest)


def _seconds(seconds: float) -> str:
    if seconds < 1:
        return f"{1000 * seconds:.0f} ms"
    return f"{seconds:,.0f} s" if seconds >= 10 else f"{seconds:.1f} s"
