"""The plan of a query for which the user gives none."""

from __future__ import annotations

from midstream.plan.tree import Plan, left_deep
from midstream.query.query import Query


def default_plan(query: Query) -> Plan:
    """Left-deep in the order of the streams, except that a stream which shares a key comes before others.

    Without statistics, the one thing to avoid is a join without a shared key: it would be a cross product.
    """
    order = [query.names[0]]
    remaining = list(query.names[1:])
    while remaining:
        joined_classes = query.classes_of(frozenset(order))
        connected = (n for n in remaining if joined_classes & query.classes_of(frozenset((n,))))
        stream = next(connected, remaining[0])
        remaining.remove(stream)
        order.append(stream)
    return left_deep(order)
