"""A sited plan as text, with what its sequences cost."""

from __future__ import annotations

from collections.abc import Mapping

from midstream.plan.explain_sites import explain_sites
from midstream.plan.sited_plan import SitedPlan
from midstream.sites.cost import SiteCostModel, StreamFigures


def explain_sited(plan: SitedPlan, model: SiteCostModel, figures: Mapping[str, StreamFigures]) -> str:
    """The sequences, with what they cost by these figures, and the node operator set of every site."""
    costs = {sequence.head: model.sequence_cost(sequence, figures) for sequence in plan.sequences}
    return explain_sites(plan, model.topology, costs)
