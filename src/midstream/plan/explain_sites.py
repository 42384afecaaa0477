"""A sited plan as text in the paper's notation, as JSON, and as a Mermaid diagram of what is shipped."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from midstream.errors import OptionError
from midstream.plan.site_operators import Operators, ShipOperator, node_operator_sets
from midstream.plan.sited_plan import SitedPlan
from midstream.plan.tree import Plan
from midstream.query.network import Site
from midstream.query.query import Query
from midstream.query.topology import Topology


def explain_sites(plan: SitedPlan, topology: Topology, costs: Mapping[str, float] | None = None) -> str:
    """The sequences, with what they cost per second if that is known, and the set of every site."""
    lines = ["Sequences: head: [order], [placements]; 0 joins where the rows are, 1 at the stream's site"]
    for sequence in plan.sequences:
        cost = "" if costs is None else f"   {costs[sequence.head]:.4f} s per second"
        lines.append(f"  {sequence}{cost}")
    lines += ["", "Node operator sets:"]
    for site, operators in node_operator_sets(plan, topology).items():
        what = ", ".join(topology.streams_at(site)) or "no stream"
        lines.append(f"  {site} ({what}{', sink' if site == topology.sink else ''})")
        lines += [f"    {operator}" for operator in operators] or ["    nothing"]
    return "\n".join(lines)


def sited_plan_to_dict(plan: SitedPlan, topology: Topology) -> dict[str, Any]:
    """The JSON form: sequences and sets, with operators as text."""
    return {
        "sink": topology.sink,
        "sites": dict(topology.site_of),
        "sequences": [
            {"head": s.head, "order": list(s.order), "placements": list(s.placements)} for s in plan.sequences
        ],
        "operators": {
            site: [str(operator) for operator in operators]
            for site, operators in node_operator_sets(plan, topology).items()
        },
    }


def sited_plan_to_mermaid(plan: SitedPlan, topology: Topology) -> str:
    """The sites with their streams, and an arrow for each link with what is shipped over it."""
    sets = node_operator_sets(plan, topology)
    ids = {site: f"n{number}" for number, site in enumerate(sets)}
    lines = ["flowchart LR"]
    for site in sets:
        streams = ", ".join(topology.streams_at(site))
        lines.append(f'    {ids[site]}["{site}{": " if streams else ""}{streams}"]')
    for site, operators in sets.items():
        for target, shipped in _shipped(operators).items():
            lines.append(f'    {ids[site]} -->|"{", ".join(shipped)}"| {ids[target]}')
    return "\n".join(lines)


SITED_FORMS = ("json", "mermaid")
"""What else a plan with sites can be explained as."""


def explain_sited_as(form: str, query: Query, plan: Plan) -> str:
    """A plan with sites as JSON, or as a Mermaid diagram."""
    if query.topology is None:
        raise OptionError(
            f"a query must have sites for explain({form!r})",
            got="streams without sites",
            hint="write explain()",
        )
    sited_plan = SitedPlan(plan.sequences)
    if form == "mermaid":
        return sited_plan_to_mermaid(sited_plan, query.topology)
    shown = msgspec.json.encode(sited_plan_to_dict(sited_plan, query.topology))
    return msgspec.json.format(shown, indent=2).decode()


def _shipped(operators: Operators) -> dict[Site, list[str]]:
    found: dict[Site, list[str]] = {}
    for operator in operators:
        if isinstance(operator, ShipOperator):
            found.setdefault(operator.site, []).append(str(operator.flow))
    return found
