"""The decision whether to change the plan now, from committed statistics alone.

The plan is changed if another one is cheaper by a margin, and if what that saves within a horizon exceeds, by
a margin, what the migration costs. Plans are compared only if the streams have changed since the last
decision, or from time to time. A migration is followed by a cooldown of a window. Migrations that follow each
other closely mean that the streams change faster than plans can follow, or seem to: each of them doubles the
patience, by which the cooldown is multiplied and the horizon divided.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations

from msgspec.structs import replace

from midstream.adapt.cost_error import log_ratio_error
from midstream.adapt.estimate import Estimator
from midstream.adapt.optimizer import best_plan
from midstream.adapt.plan_cost import cost_terms, plan_cost
from midstream.adapt.policy import MigrationPolicy, allowed_migrations, pick
from midstream.adapt.single_partition import (
    SinglePartition,
    describe_unplaced,
    max_unplaced_bytes,
    unplaced_bytes,
)
from midstream.adapt.statistics import window_or_recent
from midstream.plan.build_layout import build_layout
from midstream.plan.default_plan import default_plan
from midstream.plan.layout import Layout
from midstream.plan.tree import join, leaf, parse_plan
from midstream.query.query import Query
from midstream.state.adaptation import Adaptation, Decision
from midstream.state.statistics import Statistics

# A rate or a selectivity has changed if it is 1.35 times as large or as small: less is noise of the sample.
_CHANGE_THRESHOLD = math.log(1.35)
# An estimate must have changed by so many of its standard errors more, as a logarithm.
_CHANGE_PER_ERROR = 2.0
# The other plan must cost at most this share of the running one.
MAX_COST_SHARE = 0.85
# And it must be cheaper beyond doubt. The best of many plans looks better than it is, by chance. So the
# interval of confidence is one for all plans at once, with a probability of 99.8 %; and of 99.99 % to leave
# a plan that the query has chosen itself, since plans are compared again and again. These are standard errors
# of a comparison, beyond those for the number of streams. A plan that is four times cheaper is taken however
# little is known.
_STANDARD_ERRORS = 2.2
_STANDARD_ERRORS_AGAIN = 3.0
MIN_COST_SHARE = 0.25
# Savings must be this many times what the migration costs, since both are estimates.
_MIN_SAVINGS_PER_COST = 1.5
# Of what saves less, the text says just that.
_SHOWN_SHARE = 0.01
# In windows of event time: for how long savings count, the least and the most time between two comparisons
# while streams change and while they do not, and how soon after another a migration counts as close to it.
_HORIZON_WINDOWS = 4.0
_MIN_WINDOWS_BETWEEN_COMPARISONS = 0.125
_RECHECK_WINDOWS = 2.0
# While little is known, estimates soon get better: plans are compared again when so much more has been seen.
_RECHECK_SHARE = 0.25
_CLOSE_WINDOWS = 4.0
# With this much patience a cooldown takes sixteen windows.
_MAX_PATIENCE = 16.0
# Rows, after decay, that a stream must have brought for its statistics to mean anything.
_MIN_STREAM_ROWS = 0.05
# Seconds; while a query without a window has hardly begun, its window is taken to be this long.
_MIN_WINDOW = 1.0
# Stands for zero where something is divided by it.
_TINY = 1e-30


@dataclass(frozen=True, kw_only=True)
class DecisionContext:
    """What a decision is made from: the plan that runs, with no other beside it, and the statistics."""

    query: Query
    layout: Layout
    statistics: Statistics
    partitions: int
    epoch: int
    single_partition: SinglePartition = "auto"

    @property
    def now(self) -> float:
        """Seconds of event time since the first statistics."""
        return self.statistics.elapsed

    @cached_property
    def window(self) -> float:
        """The longest window in seconds; without one, a quarter of the time that has passed."""
        return _window(self.query, self.statistics)

    @cached_property
    def estimator(self) -> Estimator:
        """Estimates from the statistics."""
        return Estimator(self.query, self.statistics)

    def is_allowed(self, layout: Layout) -> bool:
        """Whether a plan may be chosen: no node that no key places has more state than it may have."""
        size = unplaced_bytes(layout, self.estimator)
        return size is None or size <= max_unplaced_bytes(self.query, self.partitions, self.single_partition)

    @cached_property
    def figures(self) -> dict[str, float]:
        """The values in which changes show: the rate of each stream and the selectivity of each pair."""
        rates = {name: self.estimator.rate((name,)) for name in self.query.names}
        selectivities = {_pair_name(pair): self.estimator.selectivity(pair).value for pair in self.pairs}
        return {**rates, **selectivities}

    @cached_property
    def pairs(self) -> list[tuple[str, str]]:
        """The pairs of streams that share a key class; all pairs if none does."""
        pairs = list(combinations(self.query.names, 2))
        return [(a, b) for a, b in pairs if any({a, b} <= c.streams for c in self.query.classes)] or pairs

    @property
    def streams_without_statistics(self) -> list[str]:
        """The streams that have not brought enough rows yet, or whose rows are too long ago."""
        streams = self.statistics.streams
        known = {name for name, of_stream in streams.items() if of_stream.rows > _MIN_STREAM_ROWS}
        return [name for name in self.query.names if name not in known]


def decide(context: DecisionContext, adaptation: Adaptation, policy: MigrationPolicy) -> Adaptation:
    """What is decided while no migration is under way; if nothing is, the adaptation as it was."""
    now, window = context.now, context.window
    if (taken_back := _taken_back(context, adaptation, policy)) is not None:
        return taken_back
    if now < max(adaptation.cooldown_until, window / 2) or context.streams_without_statistics:
        return adaptation
    is_forbidden = context.single_partition == "forbid" and not context.is_allowed(context.layout)
    chosen_plans = (adaptation.requested_plan, adaptation.restored_plan)
    is_chosen = str(context.layout.plan) in chosen_plans and not is_forbidden
    if is_chosen and not adaptation.baseline:
        # A user's request is a decision too, and stands until the streams change.
        return replace(adaptation, baseline=context.figures)
    decided_before, since_last = adaptation.last_decision is not None, now - adaptation.decided_at
    if decided_before and since_last < _MIN_WINDOWS_BETWEEN_COMPARISONS * window:
        return adaptation
    changes = _changes(adaptation.baseline, context)
    recheck = min(_RECHECK_WINDOWS * window, _RECHECK_SHARE * adaptation.decided_at)
    waits = is_chosen or (decided_before and since_last < recheck)
    if not changes and waits and not is_forbidden:
        return adaptation
    again = adaptation.migrated_at is not None
    decision = _compare(context, changes, horizon_of(context, adaptation), policy, again=again)
    if decision.verdict == "stay":
        return replace(adaptation, last_decision=decision, decided_at=now, baseline=context.figures)
    return _migrating(context, adaptation, decision)


def _migrating(context: DecisionContext, adaptation: Adaptation, decision: Decision) -> Adaptation:
    now, window = context.now, context.window
    patience = next_patience(adaptation, now, window)
    return Adaptation(
        last_decision=decision,
        decided_at=now,
        baseline=context.figures,
        cooldown_until=now + window * patience,
        patience=patience,
        migrated_at=now,
        trial=adaptation.trial,
        last_outcome=adaptation.last_outcome,
    )


def _taken_back(
    context: DecisionContext, adaptation: Adaptation, policy: MigrationPolicy
) -> Adaptation | None:
    """A migration that turned out worse than what was left is taken back, once; None if there is none.

    The plan that it goes back to stays until the streams change, so that it does not lead to the same one.
    """
    outcome, last = adaptation.last_outcome, adaptation.last_decision
    if outcome is None or not outcome.is_worse or outcome.is_final:
        return None
    is_answered = last is not None and last.epoch >= outcome.epoch
    if is_answered or outcome.new_plan != str(context.layout.plan):
        return None
    plan = parse_plan(outcome.old_plan, context.query.names)
    if not context.is_allowed(build_layout(context.query, plan)):
        return None
    estimator, horizon = context.estimator, horizon_of(context, adaptation)
    migration = pick(allowed_migrations(context.layout, plan, estimator, policy), policy.goal)
    pays = -outcome.gain * horizon >= _MIN_SAVINGS_PER_COST * migration.work
    reason = f"migration {outcome.migration} turned out worse than what was left"
    decision = Decision(
        epoch=context.epoch,
        verdict="migrate" if pays else "stay",
        reason=reason if pays else f"{reason}, but to take it back would not pay",
        plan=outcome.new_plan,
        cost=outcome.new_cost,
        best_plan=outcome.old_plan,
        best_cost=outcome.old_cost,
        strategy=migration.strategy,
        background=migration.background,
        isolated=migration.isolated,
        migration_cost=max(0.0, float(migration.work)),
        horizon=horizon,
        takes_back=outcome.migration if pays else 0,
    )
    if not pays:
        figures = context.figures
        return replace(adaptation, last_decision=decision, decided_at=context.now, baseline=figures)
    return replace(_migrating(context, adaptation, decision), restored_plan=outcome.old_plan)


def horizon_of(context: DecisionContext, adaptation: Adaptation) -> float:
    """For how many seconds what a plan saves counts."""
    return _HORIZON_WINDOWS * context.window / adaptation.patience


def _window(query: Query, statistics: Statistics) -> float:
    return max(window_or_recent(query, statistics.elapsed), _MIN_WINDOW)


def next_patience(adaptation: Adaptation, now: float, window: float) -> float:
    """The patience after another migration: twice as much if the last one was close, else half."""
    patience, migrated_at = adaptation.patience, adaptation.migrated_at
    if migrated_at is not None and now - migrated_at < _CLOSE_WINDOWS * window * patience:
        return min(2 * patience, _MAX_PATIENCE)
    return max(1.0, patience / 2)


def after_migration(query: Query, statistics: Statistics, adaptation: Adaptation) -> Adaptation:
    """While a migration is under way, and with the epoch that ends it: nothing is decided for a while."""
    cooldown_until = statistics.elapsed + _window(query, statistics) * adaptation.patience / 2
    return replace(adaptation, cooldown_until=max(adaptation.cooldown_until, cooldown_until))


def _compare(
    context: DecisionContext,
    changes: tuple[str, ...],
    horizon: float,
    policy: MigrationPolicy,
    *,
    again: bool,
) -> Decision:
    query, estimator, partitions = context.query, context.estimator, context.partitions
    running = context.layout.plan
    cost = plan_cost(running, estimator, partitions)
    best = best_plan(estimator, partitions, context.single_partition)
    best_layout = build_layout(query, best.plan)
    # For people to compare with: the plan as the query is written, and one node for all streams.
    others = (default_plan(query), join(*(leaf(name) for name in query.names)))
    migration = pick(allowed_migrations(context.layout, best.plan, estimator, policy), policy.goal)
    terms = [cost_terms(layout, estimator, partitions) for layout in (context.layout, best_layout)]
    error = log_ratio_error(*terms, estimator=estimator)
    doubt = math.exp(-standard_errors(query, again=again) * error)
    max_share = min(MAX_COST_SHARE, max(MIN_COST_SHARE, doubt))
    must_leave = not context.is_allowed(context.layout)
    is_cheaper = best.cost <= max_share * cost
    pays = (cost - best.cost) * horizon >= _MIN_SAVINGS_PER_COST * migration.work
    saved_share = 1 - best.cost / max(cost, 1e-9)
    if must_leave:
        reason = f"the running plan has {_in_one_partition(context, context.layout)}"
    elif str(best.plan) == str(running):
        reason = "the running plan is the best known"
    elif not is_cheaper:
        saves = f"{saved_share:.0%}" if saved_share >= _SHOWN_SHARE else f"less than {_SHOWN_SHARE:.0%}"
        reason = f"the best plan saves {saves}, and must save {1 - max_share:.0%}"
    elif not pays:
        reason = f"the best plan saves {saved_share:.0%}, which does not pay for the migration"
    else:
        reason = f"the best plan saves {saved_share:.0%}"
    if partitions > 1 and any(best_layout.unplaced_nodes):
        reason += f"; it has {_in_one_partition(context, best_layout)}"
    return Decision(
        epoch=context.epoch,
        verdict="migrate" if must_leave or (is_cheaper and pays) else "stay",
        reason=reason,
        plan=str(running),
        cost=cost,
        best_plan=str(best.plan),
        best_cost=best.cost,
        strategy=migration.strategy,
        background=migration.background,
        isolated=migration.isolated,
        migration_cost=max(0.0, float(migration.work)),
        horizon=horizon,
        compared={str(plan): plan_cost(plan, estimator, partitions) for plan in others},
        changed=changes,
    )


def standard_errors(query: Query, *, again: bool = False) -> float:
    """The half width of an interval of confidence for all comparisons at once, in standard errors (Scheffé).

    Errors come from the streams, so a comparison is a direction in a space of as many dimensions. The error
    in the worst direction has a chi distribution, whose quantiles grow with the dimensions about like this.
    """
    return math.sqrt(len(query.names) - 0.5) + (_STANDARD_ERRORS_AGAIN if again else _STANDARD_ERRORS)


def _in_one_partition(context: DecisionContext, layout: Layout) -> str:
    megabytes = (unplaced_bytes(layout, context.estimator) or 0.0) / 1e6
    return f"{describe_unplaced(layout)} in one engine partition, with {megabytes:,.1f} MB of state"


def _changes(baseline: Mapping[str, float], context: DecisionContext) -> tuple[str, ...]:
    """What has changed by more than chance since the last decision, for people to read."""
    estimator = context.estimator
    rate_errors = {name: estimator.estimate((name,)).error for name in context.query.names}
    match_errors = {_pair_name(pair): estimator.selectivity(pair).error for pair in context.pairs}
    errors = rate_errors | match_errors
    changes = []
    for name, value in context.figures.items():
        if name not in baseline:
            continue
        ratio = max(value, _TINY) / max(baseline[name], _TINY)
        if abs(math.log(ratio)) >= _CHANGE_THRESHOLD + _CHANGE_PER_ERROR * errors[name]:
            kind = "match" if name in match_errors else "rate"
            changes.append(f"{kind} of {name}: {value / max(baseline[name], _TINY):.2g} x")
    return tuple(changes)


def _pair_name(pair: tuple[str, str]) -> str:
    return " and ".join(pair)
