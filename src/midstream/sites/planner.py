"""Plans for queries with sites: the figures that they follow from, and the planners to choose from."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, get_args

from midstream.adapt.estimate import Estimator
from midstream.adapt.statistics import window_or_recent
from midstream.errors import InternalError
from midstream.plan.default_plan import default_plan
from midstream.plan.sited_plan import SitedPlan
from midstream.plan.tree import Plan, sited
from midstream.query.query import Query
from midstream.query.topology import Topology
from midstream.sites.cost import SiteCostModel, StreamFigures, neighbours_of
from midstream.sites.greedy import greedy_plan
from midstream.sites.optimal import MAX_STREAMS, optimal_plan
from midstream.sites.shared_plan import SharedCosts, shared_plan
from midstream.state.statistics import Statistics
from midstream.values import MICROS_PER_SECOND

Planner = Literal["shared", "greedy", "optimal"]
PLANNERS: tuple[Planner, ...] = get_args(Planner)
ReplanMode = Literal["central", "distributed"]
UPDATES: tuple[ReplanMode, ...] = get_args(ReplanMode)

# What a probe and an update take, in seconds: states are searched by hash, so a row of the window that does
# not match costs next to nothing. Links are what decides.
_PROBE_SECONDS = 1e-10
_UPDATE_SECONDS = 1e-6
# Figures of streams of which nothing is known yet: all the same, and about one partner for each row.
_UNKNOWN_RATE = 100.0
_UNKNOWN_ROW_BYTES = 100.0
_UNKNOWN_WINDOW_SECONDS = 60.0

_FIND: Mapping[Planner, Callable[[SiteCostModel, Mapping[str, StreamFigures]], SitedPlan]] = {
    "greedy": greedy_plan,
    "optimal": optimal_plan,
    "shared": shared_plan,
}


@dataclass(frozen=True, slots=True)
class SitePolicy:
    """How plans for sites are found, and when another one is."""

    planner: Planner = "shared"
    update: ReplanMode = "central"
    threshold: float = 0.2
    """A figure of a stream has changed if it differs from the one that was known by more than this share."""


def topology_of(query: Query) -> Topology:
    """Where the streams of a query with sites live."""
    if query.topology is None:
        raise InternalError("a query must have sites to have a plan for them", got="none")
    return query.topology


def cost_model(query: Query, window_seconds: float = _UNKNOWN_WINDOW_SECONDS) -> SiteCostModel:
    """What joins cost between the sites; ``window_seconds`` stand for windows that have no end."""
    names = query.names
    pairs = [(a, b) for c in query.classes for a in c.streams for b in c.streams if a < b]
    return SiteCostModel(
        topology=topology_of(query),
        windows={name: _longest_window(query, name, window_seconds) for name in names},
        probe_seconds=_PROBE_SECONDS,
        update_seconds=_UPDATE_SECONDS,
        neighbours=neighbours_of(names, pairs),
    )


def _longest_window(query: Query, name: str, window_seconds: float) -> float:
    widths = [query.windows.width(name, other) for other in query.names if other != name]
    return max(window_seconds if width is None else width / MICROS_PER_SECOND for width in widths)


def unknown_figures(model: SiteCostModel) -> dict[str, StreamFigures]:
    """Figures of streams before they have brought any rows."""
    return {
        name: StreamFigures(
            _UNKNOWN_RATE, min(1.0, 1 / (_UNKNOWN_RATE * max(window, 1e-3))), _UNKNOWN_ROW_BYTES
        )
        for name, window in model.windows.items()
    }


def figures_of(query: Query, statistics: Statistics) -> tuple[SiteCostModel, dict[str, StreamFigures]]:
    """The figures of all streams from what was seen of them, and the model that they are for.

    The model has one selectivity per stream, and takes the smaller one of two that are joined: so it is the
    largest of those to its neighbours.
    """
    model = cost_model(query, window_or_recent(query, statistics.elapsed) or _UNKNOWN_WINDOW_SECONDS)
    estimator = Estimator(query, statistics)
    return model, {name: _figures(model, estimator, name) for name in query.names}


def _figures(model: SiteCostModel, estimator: Estimator, name: str) -> StreamFigures:
    rate = estimator.rate((name,))
    shares = [0.0]
    for other in (model.neighbours or {}).get(name, ()):
        pairs = 2 * rate * estimator.rate((other,)) * max(model.windows[other], 1e-3)
        shares.append(estimator.rate((name, other)) / pairs if pairs > 0 else 0.0)
    size = estimator.row_bytes((name,))
    return StreamFigures(rate, min(1.0, max(shares)), size)


def find_plan(planner: Planner, model: SiteCostModel, figures: Mapping[str, StreamFigures]) -> Plan:
    """The plan of a planner. Of too many streams for the best one to be found, it is the greedy one."""
    if planner == "optimal" and len(model.topology.streams) > MAX_STREAMS:
        planner = "greedy"
    return sited(_FIND[planner](model, figures).sequences)


def cost_of(
    planner: Planner, model: SiteCostModel, figures: Mapping[str, StreamFigures], plan: Plan
) -> float:
    """What a plan costs, in seconds per second, as the planner counts."""
    sequences = SitedPlan(plan.sequences)
    if planner == "shared":
        return SharedCosts(model, figures).plan_cost(sequences)
    return model.plan_cost(sequences, figures)


def first_plan(query: Query, policy: SitePolicy | None = None) -> Plan:
    """The plan of a query for which the user gives none, and of whose streams nothing is known yet."""
    if query.topology is None:
        return default_plan(query)
    policy = policy or SitePolicy()
    model = cost_model(query)
    return find_plan(policy.planner, model, unknown_figures(model))
