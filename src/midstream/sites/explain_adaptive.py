"""Explaining decisions about the plan of streams that live at sites: figures, costs, and reasons."""

from __future__ import annotations

from midstream.adapt.decision import DecisionContext
from midstream.adapt.explain import describe_decision
from midstream.plan.explain_sites import explain_sites
from midstream.plan.sited_plan import SitedPlan
from midstream.sites.decision import UNITS_PER_SECOND
from midstream.sites.planner import SitePolicy, cost_of, figures_of
from midstream.state.adaptation import Adaptation


def explain_adaptive_sites(
    context: DecisionContext, adaptation: Adaptation, policy: SitePolicy, *, adapts: bool
) -> str:
    """The statistics of the streams, what the running plan costs, and the last decision."""
    missing = context.streams_without_statistics
    how = f"by the planner {policy.planner}, {policy.update}" if adapts else "off"
    lines = [f"Adapting: {how}", f"Plan: {context.layout.plan}"]
    if missing:
        return "\n".join([*lines, f"Nothing is known of {', '.join(missing)} yet."])
    model, figures = figures_of(context.query, context.statistics)
    cost = UNITS_PER_SECOND * cost_of(policy.planner, model, figures, context.layout.plan)
    lines += [f"It costs {cost:,.0f} units/s: microseconds of links and of computing.", "", "Streams"]
    lines += [
        f"  {name} at {model.topology.site_of[name]}: {f.rate:,.1f} rows/s of event time, "
        f"{f.row_bytes:,.0f} bytes a row, selectivity {f.selectivity:.3g}"
        for name, f in figures.items()
    ]
    costs = {s.head: model.sequence_cost(s, figures) for s in context.layout.plan.sequences}
    lines += ["", explain_sites(SitedPlan(context.layout.plan.sequences), model.topology, costs)]
    if adaptation.last_decision is not None:
        lines += ["", *describe_decision(adaptation.last_decision)]
    cooldown = adaptation.cooldown_until - context.now
    if adapts and cooldown > 0:
        lines.append(f"Nothing is changed for {cooldown:,.0f} s of event time.")
    return "\n".join(lines)
