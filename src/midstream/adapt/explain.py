"""Adapting as text that a person reads: what is known of the streams, and what was decided why."""

from __future__ import annotations

from collections.abc import Iterator

from midstream.adapt.decision import DecisionContext
from midstream.adapt.estimate import Estimator
from midstream.adapt.plan_cost import plan_cost
from midstream.plan.layout import key_column
from midstream.query.query import Query
from midstream.state.adaptation import Adaptation, Decision
from midstream.state.statistics import KeyStatistics, Statistics


def explain_adaptive(decision_context: DecisionContext, known: Adaptation, *, adapts: bool) -> str:
    """The statistics, the last decision, and what holds until the next."""
    lines = ["== Adapting ==" if adapts else "== Adapting (off) =="]
    if not decision_context.is_known():
        lines.append("Nothing is known yet of some streams.")
        return "\n".join(lines)
    estimator = decision_context.estimator
    cost = plan_cost(decision_context.layout.plan, estimator, decision_context.partitions)
    lines.append(f"The running plan, {decision_context.layout.plan}, costs {_units(cost)}.")
    lines += ["", "Streams", *_streams(decision_context.query, decision_context.statistics, estimator)]
    lines += ["", "Joins", *_joins(decision_context)]
    if known.last is not None:
        lines += ["", *describe_decision(known.last)]
    if adapts and known.cooldown_until > decision_context.now:
        lines.append(
            f"Nothing is changed for {known.cooldown_until - decision_context.now:,.0f} s of event time."
        )
    if known.asked == str(decision_context.layout.plan):
        lines.append("The plan was asked for: it stands until something changes.")
    return "\n".join(lines)


def describe_decision(decision: Decision) -> Iterator[str]:
    """A decision: what had changed, what was compared, what came of it."""
    verdict = f"to {decision.verdict}. {_sentence(decision.reason)}"
    yield f"Last decision, after epoch {decision.epoch}: {verdict}"
    for change in decision.changed:
        yield f"  changed: {change}"
    plans = {decision.plan: decision.cost, **decision.compared, decision.best: decision.best_cost}
    width = max(map(len, plans))
    for plan, cost in sorted(plans.items(), key=lambda item: item[1]):
        marks = [m for m, p in (("running", decision.plan), ("best", decision.best)) if p == plan]
        yield f"  {plan:<{width}}  {_units(cost)}  {', '.join(marks)}".rstrip()
    if decision.best != decision.plan:
        with_what = " with background work" if decision.background else ""
        with_what = " with its plans apart" if decision.isolated else with_what
        saved = (decision.cost - decision.best_cost) * decision.horizon
        yield f"  A migration by {decision.strategy}{with_what} costs {decision.price:,.0f} units;"
        yield f"  in {decision.horizon:,.0f} s the best plan saves {saved:,.0f}."


def _streams(query: Query, statistics: Statistics, estimator: Estimator) -> Iterator[str]:
    for name in query.names:
        size = estimator.row_bytes((name,))
        yield f"  {name}: {_number(estimator.rate((name,)))} rows/s of event time, {size:,.0f} bytes a row"
        for key_class in (c for c in query.classes if name in c.streams):
            keys = statistics.streams[name].keys.get(key_column(name, key_class.id), KeyStatistics())
            distinct = len(keys.keys) / 8 / keys.threshold
            observed_seconds = f"{keys.threshold:.2%} of them watched"
            yield f"    {key_class}: distinct keys about {distinct:,.0f}, {observed_seconds}"
    for key_class in query.classes:
        hot = len(statistics.hot.get(key_class.id, b"")) // 8
        if hot:
            yield f"  {hot} frequent keys of {key_class}"


def _joins(decision_context: DecisionContext) -> Iterator[str]:
    for pair in decision_context.pairs:
        found = decision_context.estimator.estimate(pair)
        yield f"  {' and '.join(pair)}: {_number(found.value)} rows/s, {found.confidence:.0%} sure"


def _units(cost: float) -> str:
    return f"{_number(cost)} units/s"


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."
