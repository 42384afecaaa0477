"""Deciding about the plan of streams that live at sites, from what is known of all of them.

Figures of streams are compared with those of the last decision. When one has changed by more than the
threshold, and by more than chance, a plan is found for the current figures. It is taken if what it saves
while they last is more than what it takes to copy the windows that it lacks.

Costs are microseconds of links and of computing per second of event time.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

from msgspec.structs import replace

from midstream.adapt.decision import DecisionContext, horizon_of, next_patience
from midstream.migration.sited_switch import source_of, windows_to_copy
from midstream.migration.strategies import SITE_SWITCH
from midstream.plan.build_layout import build_layout
from midstream.plan.tree import Plan
from midstream.sites.cost import SiteCostModel, StreamFigures
from midstream.sites.distributed import SitesRound as SiteStep
from midstream.sites.distributed import decided_plan, first_state, read_state, with_switch, write_state
from midstream.sites.planner import SitePolicy, cost_of, figures_of, find_plan
from midstream.state.adaptation import Adaptation, Decision

UNITS_PER_SECOND = 1e6
"""Costs of links and of computing, which are seconds, are shown in microseconds."""
# In windows of event time: the least time between two comparisons.
_MIN_WINDOWS_BETWEEN_COMPARISONS = 0.125
# Savings must be this many times what copying takes, since both are estimates.
_MIN_SAVINGS_PER_COST = 1.5
# A plan must cost at most this share of the running one.
_MAX_COST_SHARE = 0.95
# Figures must have changed by so many of their standard errors more, as logarithms.
_CHANGE_PER_ERROR = 2.0
_TINY = 1e-30

FiguresByStream = Mapping[str, StreamFigures]


def decide_at_sites(context: DecisionContext, adaptation: Adaptation, policy: SitePolicy) -> Adaptation:
    """What is decided while no migration is under way; if nothing is, the adaptation as it was."""
    now, window = context.now, context.window
    if now < window / 2 or context.streams_without_statistics:
        return adaptation
    model, figures = figures_of(context.query, context.statistics)
    if policy.update == "distributed":
        return _decide_distributed(context, adaptation, policy, (model, figures))
    if now < adaptation.cooldown_until:
        return adaptation
    errors, now_flat = _errors(context), _flat(figures)
    baseline = _baseline(now_flat, errors)
    is_asked_for = str(context.layout.plan) == adaptation.requested_plan
    if is_asked_for and not adaptation.baseline:
        # A user's request is a decision too, and stands until the streams change.
        return replace(adaptation, baseline=baseline)
    decided_before, since_last = adaptation.last_decision is not None, now - adaptation.decided_at
    if decided_before and since_last < _MIN_WINDOWS_BETWEEN_COMPARISONS * window:
        return adaptation
    changes = tuple(_changes(errors, adaptation.baseline, now_flat, policy.threshold))
    if not changes and (decided_before or is_asked_for):
        return adaptation
    best = find_plan(policy.planner, model, figures)
    decision = _compare(context, adaptation, policy, best, (model, figures), changes)
    if decision.verdict == "stay":
        return replace(adaptation, last_decision=decision, decided_at=now, baseline=baseline)
    patience = next_patience(adaptation, now, window)
    return Adaptation(
        last_decision=decision,
        decided_at=now,
        baseline=baseline,
        cooldown_until=now + window * patience,
        patience=patience,
        migrated_at=now,
    )


def _decide_distributed(
    context: DecisionContext,
    adaptation: Adaptation,
    policy: SitePolicy,
    known: tuple[SiteCostModel, dict[str, StreamFigures]],
) -> Adaptation:
    """One step of the machines of the sites; if they have decided about sequences, the plan gets these."""
    (model, figures), running, now = known, context.layout.plan, context.now
    is_asked_for = str(running) == adaptation.requested_plan
    if is_asked_for and not adaptation.baseline:
        # What was on its way is about another plan. The current figures are those that this one is for.
        state = first_state(model, figures)
        baseline = _baseline(_flat(figures), _errors(context))
        return replace(adaptation, baseline=baseline, sites=write_state(state))
    before = first_state(model) if adaptation.sites is None else read_state(adaptation.sites)
    errors = _errors(context)

    def is_news(stream: str, told: StreamFigures, seen: StreamFigures) -> bool:
        return any(_changes(errors, _flat({stream: told}), _flat({stream: seen}), policy.threshold))

    state = SiteStep(model, running, before).run(figures, is_news)
    if not state.decided:
        return replace(adaptation, sites=write_state(state))
    plan = decided_plan(running, state)
    costs = [UNITS_PER_SECOND * cost_of(policy.planner, model, figures, p) for p in (running, plan)]
    decision = Decision(
        epoch=context.epoch,
        verdict="migrate",
        reason=f"sites have decided about {', '.join(state.decided)}",
        plan=str(running),
        cost=costs[0],
        best_plan=str(plan),
        best_cost=costs[1],
        strategy=SITE_SWITCH,
        background=True,
        migration_cost=UNITS_PER_SECOND * copying_seconds(context, plan, model, figures),
        horizon=horizon_of(context, adaptation),
        changed=tuple(_changes(errors, adaptation.baseline, _flat(figures), policy.threshold)),
    )
    return Adaptation(
        last_decision=decision,
        decided_at=now,
        baseline=_baseline(_flat(figures), errors),
        cooldown_until=now,
        migrated_at=now,
        sites=write_state(with_switch(state)),
    )


def _compare(
    context: DecisionContext,
    adaptation: Adaptation,
    policy: SitePolicy,
    best: Plan,
    known: tuple[SiteCostModel, FiguresByStream],
    changes: tuple[str, ...],
) -> Decision:
    model, figures = known
    running = context.layout.plan
    cost, best_cost = (
        UNITS_PER_SECOND * cost_of(policy.planner, model, figures, plan) for plan in (running, best)
    )
    copying = UNITS_PER_SECOND * copying_seconds(context, best, model, figures)
    horizon = horizon_of(context, adaptation)
    saved_share = 1 - best_cost / max(cost, 1e-9)
    is_cheaper = best_cost <= _MAX_COST_SHARE * cost
    pays = (cost - best_cost) * horizon >= _MIN_SAVINGS_PER_COST * copying
    if best == running:
        reason = "the running plan is the best known"
    elif not is_cheaper:
        reason = f"the best plan saves {max(saved_share, 0):.0%}, and must save {1 - _MAX_COST_SHARE:.0%}"
    elif not pays:
        reason = f"the best plan saves {saved_share:.0%}, which does not pay for copying windows"
    else:
        reason = f"the best plan saves {saved_share:.0%}"
    return Decision(
        epoch=context.epoch,
        verdict="migrate" if best != running and is_cheaper and pays else "stay",
        reason=reason,
        plan=str(running),
        cost=cost,
        best_plan=str(best),
        best_cost=best_cost,
        strategy=SITE_SWITCH,
        background=True,
        isolated=False,
        migration_cost=copying,
        horizon=horizon,
        changed=changes,
    )


def copying_seconds(
    context: DecisionContext, plan: Plan, model: SiteCostModel, figures: FiguresByStream
) -> float:
    """How long links are busy with the windows that a plan lacks, if they are full."""
    seconds = 0.0
    for target in windows_to_copy(context.query, context.layout, build_layout(context.query, plan)):
        (stream,) = target.streams
        source = source_of(context.layout, target)
        rows = figures[stream].rate * model.windows[stream]
        size = rows * figures[stream].row_bytes
        seconds += model.topology.network.transfer_seconds(source.site, target.site, size)
    return seconds


def _flat(figures: FiguresByStream) -> dict[str, float]:
    """All figures by what they are of, as the manifest has them."""
    return {
        f"{what} of {name}": value
        for name, of_stream in figures.items()
        for what, value in (
            ("rate", of_stream.rate),
            ("selectivity", of_stream.selectivity),
            ("row size", of_stream.row_bytes),
        )
    }


def _baseline(figures: Mapping[str, float], errors: Mapping[str, float]) -> dict[str, float]:
    """Figures as they are remembered: how far they may be from the truth counts later, too."""
    return {**figures, **{f"error of {what}": error for what, error in errors.items()}}


def _errors(context: DecisionContext) -> dict[str, float]:
    """How far figures may be from the truth, as standard deviations of their logarithms."""
    errors = {f"rate of {n}": context.estimator.estimate((n,)).error for n in context.query.names}
    for pair in context.pairs:
        for name in pair:
            what = f"selectivity of {name}"
            errors[what] = max(errors.get(what, 0.0), context.estimator.estimate(pair).error)
    return errors


def _changes(
    errors: Mapping[str, float], before: Mapping[str, float], now: Mapping[str, float], threshold: float
) -> Iterator[str]:
    """What has changed by more than the threshold, and by more than chance, for people to read."""
    for what, value in now.items():
        if what not in before:
            continue
        ratio = max(value, _TINY) / max(before[what], _TINY)
        error = math.hypot(errors.get(what, 0.0), before.get(f"error of {what}", 0.0))
        if abs(math.log(ratio)) >= math.log1p(threshold) + _CHANGE_PER_ERROR * error:
            yield f"{what}: {ratio:.2g} x"
