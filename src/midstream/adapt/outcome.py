"""What a migration turned out to cost and to save, compared with what was estimated.

Its cost is the work of the epochs that it took, less what the new plan does in as much time. What it saves is
what the old plan would do now, less what the new one was seen to do. The old plan does not run any more, so
what it would do is estimated from the current statistics. How far estimates of this plan are off was seen
while it ran: that is its bias.

The bytes that plans store are left out, since what they cost is not seen in any epoch.
"""

from __future__ import annotations

import math

from msgspec.structs import replace

from midstream.adapt.cost import CostModel
from midstream.adapt.decision import MAX_COST_SHARE, MIN_COST_SHARE, DecisionContext, standard_errors
from midstream.adapt.estimate import Estimator
from midstream.adapt.migration_cost import MigrationCost, migration_costs
from midstream.adapt.plan_cost import cost_of
from midstream.adapt.statistics import decay_seconds, window_or_recent
from midstream.migration.strategies import STRATEGIES
from midstream.plan.build_layout import build_layout
from midstream.plan.tree import Plan, parse_plan
from midstream.state.adaptation import MigrationOutcome, Prediction, Trial
from midstream.state.costs import Cost
from midstream.state.migration import Migration
from midstream.state.statistics import Statistics

# Half a window after a migration the work of the new plan is known: the share of the time constant by then.
_MIN_WATCHED_SHARE = 0.6
# A plan has a known bias if it had run for one and a half windows: until then states fill.
_MIN_OBSERVED_SHARE = 0.95
# If it has none, estimates may be off by as much.
_MAX_SHARE_OF_ESTIMATE = 1 / 1.5
_TINY = 1e-9


def begin_trial(context: DecisionContext, migration: Migration, *, is_final: bool, changed: bool) -> Trial:
    """What is known of a migration when it begins; ``changed`` if the streams had just changed.

    ``context`` is of the epoch before. A migration that is final is not taken back.
    """
    trial = Trial(
        migration=migration.number,
        old_plan=migration.old_plan,
        new_plan=migration.new_plan,
        is_final=is_final,
    )
    if context.streams_without_statistics:
        return trial
    new_plan = parse_plan(migration.new_plan, context.query.names)
    costs = migration_costs(context.layout, new_plan, context.estimator)
    migrating = next((m for m in costs if _is_of(migration, m)), None)
    predicted = Prediction(
        old_cost=_work(context, context.layout.plan, context.estimator),
        new_cost=_work(context, new_plan, context.estimator),
        migration_cost=None if migrating is None else float(migrating.work),
    )
    statistics, bias = context.statistics, None
    is_known = statistics.observed_seconds >= _MIN_OBSERVED_SHARE * decay_seconds(context.query)
    if is_known and not changed:
        bias = _seen(context) / max(_work(context, context.layout.plan, _uncorrected(context)), _TINY)
    return replace(trial, predicted=predicted, bias=bias)


def _is_of(migration: Migration, cost: MigrationCost) -> bool:
    """Whether a cost is that of a migration by its strategy, with its variant."""
    strategy = STRATEGIES[cost.strategy]
    isolated = cost.isolated or strategy.isolation == "always"
    chosen = (migration.strategy, migration.background, migration.isolated)
    return (cost.strategy, cost.background, isolated) == chosen


def is_watched(context: DecisionContext) -> bool:
    """Whether the running plan has run alone for long enough to know what it does."""
    time_constant = window_or_recent(context.query, context.statistics.elapsed) / 2
    return context.statistics.observed_seconds >= max(_MIN_WATCHED_SHARE * time_constant, _TINY)


def migration_outcome(context: DecisionContext, trial: Trial) -> MigrationOutcome:
    """What a migration turned out to be, once its plan has run alone for a while."""
    weights = CostModel(context.estimator).weights
    old_plan = parse_plan(trial.old_plan, context.query.names)
    bias = 1.0 if trial.bias is None else trial.bias
    left, now = bias * _work(context, old_plan, _uncorrected(context)), _seen(context)
    max_share = min(
        _MAX_SHARE_OF_ESTIMATE if trial.bias is None else MAX_COST_SHARE, _share_in_doubt(context)
    )
    predicted = trial.predicted
    return MigrationOutcome(
        epoch=context.epoch,
        migration=trial.migration,
        old_plan=trial.old_plan,
        new_plan=trial.new_plan,
        is_final=trial.is_final,
        predicted_cost=None if predicted is None else predicted.migration_cost,
        cost=trial.spent.units(weights) - trial.seconds * now,
        predicted_gain=None if predicted is None else predicted.old_cost - predicted.new_cost,
        old_cost=left,
        new_cost=now,
        is_worse=left <= max_share * now,
    )


def _share_in_doubt(context: DecisionContext) -> float:
    """Two plans whose costs differ by less may differ by chance: their work was seen of so many rows."""
    rows = (context.statistics.streams[name].rows for name in context.query.names)
    error = math.sqrt(sum(1 / (2 * each) for each in rows))
    return max(MIN_COST_SHARE, math.exp(-standard_errors(context.query) * error))


def _work(context: DecisionContext, plan: Plan, estimator: Estimator) -> float:
    """The work that a plan is estimated to do, in units per second."""
    cost = cost_of(build_layout(context.query, plan), estimator, context.partitions)
    return replace(cost, stored_bytes=0.0).units(CostModel(estimator).weights)


def _seen(context: DecisionContext) -> float:
    """The work that the running plan was seen to do, in units per second."""
    statistics: Statistics = context.statistics
    per_second: Cost = statistics.spent * (1 / max(statistics.observed_seconds, _TINY))
    return per_second.units(CostModel(context.estimator).weights)


def _uncorrected(context: DecisionContext) -> Estimator:
    """Estimates by samples alone: what a plan has produced corrects only those of its own joins."""
    return Estimator(context.query, replace(context.statistics, produced={}))
