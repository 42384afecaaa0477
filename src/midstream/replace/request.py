"""Making requests for another definition, checked before anything happens."""

from __future__ import annotations

from dataclasses import dataclass

from msgspec.structs import replace

from midstream.errors import OptionError, QueryError
from midstream.migration.strategies import BLACK_BOX_STRATEGIES, check_black_box_strategy
from midstream.plan.default_plan import default_plan
from midstream.plan.tree import Plan, parse_plan
from midstream.protocol.query_terms import terms_of
from midstream.protocol.replacement_progress import check_none_under_way
from midstream.protocol.settings import definition_of, first_difference
from midstream.query.query import Query
from midstream.replace.check_replacement import check_replacement
from midstream.replace.query_coordinator import QueryCoordinator
from midstream.state.manifest import Manifest
from midstream.state.replacement import ReplacementRequest

DEFAULT_STRATEGY = "generalized_hybrid"


@dataclass(frozen=True)
class QuerySnapshot:
    """A query as a request finds it."""

    coordinator: QueryCoordinator
    manifest: Manifest
    partitions: int
    """As many as there are, or will be when all that was requested is applied."""
    asked: ReplacementRequest | None
    """The request for a replacement that waits."""

    @property
    def plan(self) -> str:
        """The current plan; if a migration is under way, that which it leads to."""
        migration = self.manifest.migration
        return self.manifest.plan if migration is None else migration.new_plan


def make_plan_request(running: QuerySnapshot, plan: str | Plan, strategy: str) -> ReplacementRequest:
    """A request for another plan of the same definition, on whatever terms it then has."""
    request = _make_request(running, running.coordinator.query, plan, strategy, "")
    return replace(request, definition={})


def make_replacement(
    running: QuerySnapshot, query: Query, plan: str | Plan | None, strategy: str, path: str
) -> ReplacementRequest:
    """A request for another definition, if the query can get it by this strategy.

    Without a plan, the current one goes on if it is one of the same streams.
    """
    if isinstance(plan, str) and plan in BLACK_BOX_STRATEGIES:
        must = "a plan must be one of the streams of the new definition"
        raise OptionError(must, got=f"{plan!r}, which is a strategy", hint=f"write strategy={plan!r}")
    request = _make_request(running, query, plan, strategy, path)
    if request.plan == running.plan and is_same(running.coordinator, query):
        raise QueryError(
            "a replacement must change something",
            got="the definition and the plan that the query has",
            hint="change the conditions, windows, outputs or aggregates of the join, or, for another plan "
            "alone, call migrate(plan); another DataFrame is read once the query is started with it",
        )
    return request


def is_same(coordinator: QueryCoordinator, query: Query) -> bool:
    """Whether a definition asks what the query asks already, on the same terms."""
    now, settings = coordinator.query, coordinator.settings
    return first_difference(definition_of(now, settings), query, settings) is None and terms_of(
        now
    ) == terms_of(query)


def _make_request(
    running: QuerySnapshot, query: Query, plan: str | Plan | None, strategy: str, path: str
) -> ReplacementRequest:
    coordinator = running.coordinator
    check_none_under_way(running.manifest, running.asked)
    traits = check_black_box_strategy(strategy)
    check_replacement(coordinator.query, query, coordinator.layout(running.manifest), traits, path)
    if plan is None:
        same = set(query.names) == set(coordinator.query.names)
        chosen = parse_plan(running.plan, query.names) if same else default_plan(query)
    else:
        chosen = parse_plan(str(plan), query.names)
    coordinator.settings.check_plan(query, chosen, running.partitions)
    definition = definition_of(query, coordinator.settings)
    return ReplacementRequest(definition=definition, plan=str(chosen), strategy=strategy, path=path)
