"""Making requests for another definition, checked before anything happens."""

from __future__ import annotations

from msgspec.structs import replace

from midstream.migration.strategies import check_black_box_strategy
from midstream.plan.default_plan import default_plan
from midstream.plan.tree import Plan, parse_plan
from midstream.protocol.rescaling import places_of
from midstream.protocol.settings import definition_of
from midstream.query.query import Query
from midstream.replace.boxes import Boxes
from midstream.replace.check_replacement import check_replacement
from midstream.state.manifest import Manifest
from midstream.state.replacement import ReplacementRequest

DEFAULT_STRATEGY = "generalized_hybrid"


def make_plan_request(
    boxes: Boxes, manifest: Manifest, plan: str | Plan, strategy: str
) -> ReplacementRequest:
    """A request for another plan of the same definition, on whatever terms it then has."""
    request = make_replacement(boxes, manifest, boxes.query, plan, strategy, "")
    return replace(request, definition={})


def make_replacement(
    boxes: Boxes, manifest: Manifest, query: Query, plan: str | Plan | None, strategy: str, path: str
) -> ReplacementRequest:
    """A request for another definition, if the query can get it by this strategy.

    Without a plan, that of now goes on if it is one of the same streams; if a migration is under way, that
    which it leads to.
    """
    traits = check_black_box_strategy(strategy)
    check_replacement(boxes.query, query, boxes.layout(manifest), traits, path)
    if plan is None:
        same = set(query.names) == set(boxes.query.names)
        now = manifest.plan if manifest.migration is None else manifest.migration.new_plan
        chosen = parse_plan(now, query.names) if same else default_plan(query)
    else:
        chosen = parse_plan(str(plan), query.names)
    boxes.settings.check_plan(query, chosen, places_of(manifest).partitions)
    return ReplacementRequest(
        definition=definition_of(query, boxes.settings), plan=str(chosen), strategy=strategy, path=path
    )
