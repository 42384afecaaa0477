"""The plan of a query that was given none."""

from __future__ import annotations

from midstream.plan.tree import Plan, left_deep
from midstream.query.query import Query


def default_plan(query: Query) -> Plan:
    """Left-deep in the order of the streams, but always going on with a stream that shares a key.

    Staying connected is what matters before anything is known of the data: a step without a shared key
    would be a cross product.
    """
    order = [query.names[0]]
    waiting = list(query.names[1:])
    while waiting:
        known = query.classes_of(frozenset(order))
        connected = (n for n in waiting if known & query.classes_of(frozenset((n,))))
        following = next(connected, waiting[0])
        waiting.remove(following)
        order.append(following)
    return left_deep(order)
