"""Adapting as text that a person reads: the statistics of the streams, and what was decided and why."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from midstream.adapt.amounts import show_cost, show_gain
from midstream.adapt.decision import DecisionContext
from midstream.adapt.estimate import Estimator
from midstream.adapt.migration_time import describe_times
from midstream.adapt.plan_cost import plan_cost
from midstream.adapt.single_partition import describe_unplaced
from midstream.adapt.statistics import entries
from midstream.plan.layout import key_column
from midstream.plan.tree import parse_plan
from midstream.query.query import Query
from midstream.state.adaptation import Adaptation, Decision, MigrationOutcome
from midstream.state.costs import DEFAULT_WEIGHTS, KINDS
from midstream.state.statistics import KeyStatistics, Statistics
from midstream.values import MICROS_PER_SECOND

# If less than this share of the longest window has passed, figures are of little use.
_LITTLE_OF_WINDOW = 0.1


def explain_adaptive(context: DecisionContext, adaptation: Adaptation, *, adapts: bool) -> str:
    """The statistics, the last decision, and what holds until the next one."""
    lines = ["== Adapting ==" if adapts else "== Adapting (off) =="]
    if not context.statistics.elapsed:
        return f"{lines[0]}\nNothing is known yet: statistics begin with the second epoch that has rows."
    if unknown := context.streams_without_statistics:
        return f"{lines[0]}\nNothing is known of {', '.join(unknown)}: no rows have come, or none lately."
    longest = context.query.longest_window / MICROS_PER_SECOND
    if context.statistics.elapsed < _LITTLE_OF_WINDOW * longest < math.inf:
        passed, window = (f"{_number(s)} s" for s in (context.statistics.elapsed, longest))
        lines.append(f"Little is known yet: {passed} of event time have passed, and the window is {window}.")
    plan, estimator = context.layout.plan, context.estimator
    cost = plan_cost(plan, estimator, context.partitions)
    lines.append(f"The running plan, {plan}, costs {_units(cost)}.")
    if context.partitions > 1 and any(context.layout.unplaced_nodes):
        nodes = describe_unplaced(context.layout)
        lines.append(f"It has {nodes} in one engine partition: no key is common to all inputs.")
    lines += ["", "Streams", *_streams(context.query, context.statistics, estimator)]
    lines += ["", "Joins", *_joins(context)]
    lines += ["", *_weights(context.statistics)]
    if adaptation.last_decision is not None:
        lines += ["", *describe_decision(adaptation.last_decision)]
        best = parse_plan(adaptation.last_decision.best_plan, context.query.names)
        if best != plan:
            times = describe_times(context.layout, best, estimator, context.partitions)
            lines += ["  A migration takes", *(f"    {time}" for time in times)]
    if adaptation.last_outcome is not None:
        lines += ["", *describe_outcome(adaptation.last_outcome)]
    cooldown = adaptation.cooldown_until - context.now
    if adapts and cooldown > 0:
        lines.append(f"Nothing is changed for {cooldown:,.0f} s of event time.")
    if adaptation.requested_plan == str(plan):
        lines.append("The plan was asked for: it stands until something changes.")
    return "\n".join(lines)


def describe_decision(decision: Decision) -> Iterator[str]:
    """A decision: what had changed, which plans were compared, what was decided."""
    verdict = f"to {decision.verdict}. {_sentence(decision.reason)}"
    yield f"Last decision, after epoch {decision.epoch}: {verdict}"
    for change in decision.changed:
        yield f"  changed: {change}"
    plans = {decision.plan: decision.cost, **decision.compared, decision.best_plan: decision.best_cost}
    width = max(map(len, plans))
    for plan, cost in sorted(plans.items(), key=lambda item: item[1]):
        marks = [m for m, p in (("running", decision.plan), ("best", decision.best_plan)) if p == plan]
        yield f"  {plan:<{width}}  {_units(cost)}  {', '.join(marks)}".rstrip()
    if decision.best_plan != decision.plan:
        how = " with background work" if decision.background else ""
        how = " with isolated plans" if decision.isolated else how
        saved = (decision.cost - decision.best_cost) * decision.horizon
        yield f"  A migration by {decision.strategy}{how} costs {decision.migration_cost:,.0f} units;"
        yield f"  in {decision.horizon:,.0f} s the best plan saves {saved:,.0f}."


def describe_outcome(outcome: MigrationOutcome) -> Iterator[str]:
    """What a migration turned out to cost and to save, and what was estimated."""
    plans = f"from {outcome.old_plan} to {outcome.new_plan}"
    verdict = "worse" if outcome.is_worse else "not clearly worse"
    yield f"Migration {outcome.migration}, {plans}, turned out {verdict}:"
    yield f"  it {show_cost(outcome.cost)}{_estimated(outcome.predicted_cost)}"
    yield f"  it {show_gain(outcome.gain)}{_estimated(outcome.predicted_gain)}:"
    left = f"{_units(outcome.new_cost)} instead of {_units(outcome.old_cost)}"
    yield f"  {left}, without what stored bytes cost"


def _estimated(value: float | None) -> str:
    return "" if value is None else f", estimated {_number(value)}"


def _weights(statistics: Statistics) -> Iterator[str]:
    """What each kind of work costs, and how long a unit takes."""
    calibration = statistics.calibration
    if not calibration.epochs:
        yield "Costs: the defaults, as nothing was measured yet"
    else:
        nanoseconds = 1e9 * calibration.seconds_per_unit
        yield f"Costs, learned from {calibration.epochs:,} epochs: a unit takes {_number(nanoseconds)} ns"
    for kind in KINDS:
        weight, default = getattr(calibration.weights, kind), getattr(DEFAULT_WEIGHTS, kind)
        learned = "" if weight == default else f", default {default:,g}"
        yield f"  {kind.replace('_', ' ')}: {weight:,.4g} units each{learned}"


def _streams(query: Query, statistics: Statistics, estimator: Estimator) -> Iterator[str]:
    for name in query.names:
        size = estimator.row_bytes((name,))
        yield f"  {name}: {_number(estimator.rate((name,)))} rows/s of event time, {size:,.0f} bytes a row"
        for key_class in (c for c in query.classes if name in c.streams):
            keys = statistics.streams[name].keys.get(key_column(name, key_class.id), KeyStatistics())
            distinct = len(np.unique(entries(keys).keys)) / keys.threshold
            sampled = f"{keys.threshold:.2%} of them sampled"
            yield f"    {key_class}: distinct keys about {distinct:,.0f}, {sampled}"
    for key_class in query.classes:
        frequent = len(statistics.frequent_keys.get(key_class.id, b"")) // 8
        if frequent:
            yield f"  {frequent} frequent keys of {key_class}"


def _joins(context: DecisionContext) -> Iterator[str]:
    for pair in context.pairs:
        estimate = context.estimator.estimate(pair)
        # Nothing is quite sure: the figure is of past rows.
        sure = min(estimate.confidence, 0.99)
        line = f"  {' and '.join(pair)}: {_number(estimate.value)} rows/s, {sure:.0%} sure"
        guesses = context.estimator.guessed_conditions(pair)
        conditions = "a condition" if guesses == 1 else f"{guesses} conditions"
        yield f"{line}; what {conditions} leave{'s' * (guesses == 1)} is guessed" if guesses else line


def _units(cost: float) -> str:
    return f"{_number(cost)} units/s"


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."
