"""Plans without cross products, told from others without the optimizer, which is to take no others."""

from functools import cache, partial

from midstream.plan.tree import Plan, all_plans
from midstream.query.query import Query


def connected_plans(query: Query) -> list[Plan]:
    """All plans in which key classes connect the streams of every node."""
    # Plans have the same sets of streams again and again.
    are_connected = cache(partial(_are_connected, query))
    return [p for p in all_plans(query.names) if all(are_connected(node.streams) for node in p.nodes())]


def is_connected(query: Query, plan: Plan) -> bool:
    """Whether no node makes a cross product: key classes lead from each of its streams to every other."""
    return all(_are_connected(query, node.streams) for node in plan.nodes())


def _are_connected(query: Query, streams: frozenset[str]) -> bool:
    reached = frozenset((min(streams),))
    while True:
        keys = query.classes_of(reached)
        extended = frozenset(n for n in streams if keys & query.classes_of(frozenset((n,)))) | reached
        if extended == reached:
            return reached == streams
        reached = extended
