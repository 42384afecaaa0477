"""Plans, and requests for them, drawn at random."""

from __future__ import annotations

import random
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import pairwise

from midstream.errors import InternalError, OptionError
from midstream.migration.request import MigrationRequest, make_request
from midstream.migration.strategies import AUTO
from midstream.plan.tree import Plan, join, leaf
from midstream.query.query import Query

_STRATEGIES = (
    ("moving_state", True, None),
    ("parallel_track", True, None),
    ("parallel_track", True, None),
    ("hybrid", False, False),
    ("hybrid", False, False),
    ("hybrid", False, True),
    ("hybrid", False, True),
    ("hybrid", True, None),
    ("hybrid", True, None),
)
"""Strategies, whether they compute in the background, and whether they isolate the new plan."""


def draw_plan(rng: random.Random, names: Sequence[str]) -> Plan:
    """Any tree over the streams, nodes of more than two inputs included."""
    return _draw_tree(rng, [leaf(name) for name in names])


def _keep_part(rng: random.Random, plan: Plan) -> Plan:
    """Another plan with one of the sub-plans of a plan that has any."""
    subplans = [node for node in plan.nodes() if node != plan]
    kept = rng.choice(subplans) if subplans else leaf(next(plan.leaves()))
    others = [leaf(name) for name in plan.leaves() if name not in kept.streams]
    return _draw_tree(rng, [kept, *others])


def _draw_tree(rng: random.Random, leaves: Sequence[Plan]) -> Plan:
    if len(leaves) == 1:
        return leaves[0]
    order = rng.sample(leaves, len(leaves))
    parts = rng.choice((2, rng.randint(2, len(order))))
    cuts = sorted(rng.sample(range(1, len(order)), parts - 1))
    return join(*(_draw_tree(rng, order[a:b]) for a, b in pairwise([0, *cuts, len(order)])))


def draw_requests(
    rng: random.Random, keeping: random.Random, query: Query, plan: Plan, epochs: int
) -> dict[int, MigrationRequest]:
    """Requests by any strategy that this query allows; some are made while a migration is under way.

    Where there are several keys, ``keeping`` draws some plans that keep a sub-plan of the one before.
    """
    requests: dict[int, MigrationRequest] = {}
    # Mostly early, so that many migrations end, and seldom before there is any state.
    request_epochs = {
        min(rng.randrange(epochs), rng.randint(1, 4)) for _ in range(rng.choice((0, 1, 1, 2, 3)))
    }
    for epoch in sorted(request_epochs):
        # Of a few plans the one with the most new nodes.
        drawn = [draw_plan(rng, query.names) for _ in range(3)]
        keeps = len(query.classes) > 1 and keeping.random() < 0.7
        kept = _keep_part(keeping, plan)
        plan = max(drawn, key=lambda other: len(_node_streams(other) - _node_streams(plan)))
        plan = kept if keeps else plan
        requests[epoch] = draw_request(rng, query, plan)
    return requests


def leave_a_choice(rng: random.Random, request: MigrationRequest) -> MigrationRequest:
    """The request, sometimes such that statistics decide how it is carried out."""
    if rng.random() < 0.2:
        return replace(request, strategy=AUTO, isolated=None)
    return replace(request, isolated=None) if rng.random() < 0.2 else request


def draw_request(rng: random.Random, query: Query, plan: Plan) -> MigrationRequest:
    """A request for a plan by any strategy that the query allows."""
    if query.topology is not None:
        return make_request(query, plan, AUTO, background=True)
    for strategy, background, isolated in rng.sample(_STRATEGIES, len(_STRATEGIES)):
        with suppress(OptionError):
            return make_request(query, str(plan), strategy, background=background, isolated=isolated)
    raise InternalError("a query must allow some strategy", got=str(plan))


def _node_streams(plan: Plan) -> set[frozenset[str]]:
    return {node.streams for node in plan.nodes()}


def strategy_name(request: MigrationRequest) -> str:
    """How a request is carried out, in words."""
    computes = request.strategy == "hybrid" and request.background
    return f"{request.strategy} with background work" if computes else request.strategy
