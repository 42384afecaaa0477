"""A sited plan as text in the paper's notation, as JSON, and as a Mermaid diagram of what is shipped."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from midstream.sites.cost import SiteCostModel, StreamFigures
from midstream.sites.network import Site
from midstream.sites.operators import Operators, Ship, node_operator_sets
from midstream.sites.sited_plan import SitedPlan
from midstream.sites.topology import Topology


def explain_sited(
    plan: SitedPlan, model: SiteCostModel, figures: Mapping[str, StreamFigures] | None = None
) -> str:
    """The sequences, with what they cost if figures of the streams are known, and the set of every site."""
    topology = model.topology
    lines = ["Sequences: head: [order], [placements]; 0 joins where the rows are, 1 at the stream's site"]
    for sequence in plan.sequences:
        cost = "" if figures is None else f"   {model.sequence_cost(sequence, figures):.4f} s per second"
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


def _shipped(operators: Operators) -> dict[Site, list[str]]:
    found: dict[Site, list[str]] = {}
    for operator in operators:
        if isinstance(operator, Ship):
            found.setdefault(operator.site, []).append(str(operator.flow))
    return found
