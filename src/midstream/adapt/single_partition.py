"""Plans with a node that no key places: all its rows are in one engine partition, however many there are.

Such a plan may save stages, and is the only one there is for streams that no key connects. But its state and
its work cannot be spread. So it is chosen only while that state is small, and never if the user forbids it.
"""

from __future__ import annotations

from math import inf
from typing import Literal, get_args

from midstream.adapt.cost import CostModel
from midstream.adapt.estimate import Estimator
from midstream.errors import OptionError
from midstream.plan.build_layout import build_layout
from midstream.plan.default_plan import default_plan
from midstream.plan.layout import Layout
from midstream.plan.tree import Plan
from midstream.query.query import Query

SinglePartition = Literal["auto", "forbid"]
SINGLE_PARTITION: tuple[SinglePartition, ...] = get_args(SinglePartition)

MAX_SINGLE_PARTITION_BYTES = 64e6
"""The most state of a node in one partition that is small: a task reads it in about a tenth of a second."""


def max_unplaced_bytes(query: Query, partitions: int, rule: SinglePartition) -> float:
    """How much state a node that no key places may have in a plan that is chosen; below zero if none may be.

    It may have any if there is only one partition, or if keys do not connect the streams: then every plan has
    such a node, also the default plan.
    """
    if partitions == 1 or describe_unplaced(build_layout(query, default_plan(query))):
        return inf
    return -1.0 if rule == "forbid" else MAX_SINGLE_PARTITION_BYTES


def unplaced_bytes(layout: Layout, estimator: Estimator) -> float | None:
    """The estimated state of the largest node that no key places; None if there is no such node."""
    model = CostModel(estimator)
    return max(
        (
            sum(model.state_bytes(frozenset(state.streams)) for state in node.inputs)
            for node in layout.unplaced_nodes
        ),
        default=None,
    )


def describe_unplaced(layout: Layout) -> str:
    """The nodes that no key places, as people read them; nothing if there are none."""
    return " and ".join(f"{{{node.id.label}}}" for node in layout.unplaced_nodes)


def check_plan(query: Query, plan: Plan, partitions: int, rule: SinglePartition) -> None:
    """Refuse a plan that the user forbids."""
    if rule != "forbid" or partitions == 1:
        return
    nodes = describe_unplaced(build_layout(query, plan))
    if nodes:
        raise OptionError(
            "with singlePartition 'forbid', all inputs of a node must have a key in common",
            got=f"plan {str(plan)!r}, which has {nodes} in one engine partition",
            hint="use a plan that joins streams by the keys they share, or set singlePartition to 'auto'",
        )
