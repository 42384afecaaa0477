"""What plans cost, put together from their subplans: the cost of a subplan is worked out once.

The search for the best plan compares tens of thousands of nodes, too many to lay each plan out. So the cost
model is added up by the placement rules alone. The sum is that of ``plan_cost.py`` over the plan's layout.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from math import inf
from typing import NamedTuple

from midstream.adapt.cost import CostModel, unplaced_factor
from midstream.adapt.estimate import Estimator
from midstream.adapt.stream_sets import ClassMask, StreamMask, StreamSets
from midstream.plan.placement import (
    common_classes,
    fragment_classes,
    fragment_stage,
    next_input,
    search_classes,
)
from midstream.plan.tree import Plan

# The key classes that a fragment is restricted to by the nodes above: by none of them.
_UNRESTRICTED: ClassMask = -1


class Subplan(NamedTuple):
    """A plan of some of the streams, and what the costs of plans that contain it depend on.

    A named tuple, which is made in a fraction of the time of a dataclass.
    """

    inputs: tuple[StreamMask, ...] = ()
    """The inputs of its top node; none if it is a stream."""
    cost: float = 0.0
    """Units per second apart from stages, which subplans side by side have in common."""
    stage: int = 0
    """The stage of the fragment that has the top node."""
    common: ClassMask = 0
    """The key classes that all inputs of the top node have."""
    placing: ClassMask = 0
    """The key classes that place the fragment."""
    forwarding: float = 0.0
    """Units per second that it costs more if the fragment runs one stage later."""


class SubplanCosts:
    """The costs of subplans of a query, by one set of estimates."""

    def __init__(self, estimator: Estimator, partitions: int, max_unplaced_bytes: float = inf) -> None:
        """A plan costs infinity if a node that no key places has more than so many bytes of state."""
        self.sets = StreamSets(estimator)
        model = CostModel(estimator)
        self.stage_cost = model.additional_stage().units(model.weights)
        self._partitions = partitions
        self._max_unplaced_bytes = max_unplaced_bytes
        # Plans that differ in little have most nodes in common.
        self._probing: dict[tuple[tuple[StreamMask, ...], ClassMask], float] = {}

    def in_one_partition(self) -> SubplanCosts:
        """The costs if there were one engine partition, where a node that no key places costs no more."""
        costs = copy(self)
        costs._partitions = 1
        return costs

    def of_plan(self, plan: Plan) -> float:
        """What a plan costs in units per second, with the inputs of its nodes in the order that they have."""
        sets = self.sets
        subplans = {stream: Subplan() for stream in sets.streams}
        for node in plan.nodes():
            inputs = tuple(sets.mask_of(child.streams) for child in node.inputs)
            subplans[sets.mask_of(node.streams)] = self.join(inputs, subplans)
        return self.with_stages(subplans[sets.mask_of(plan.streams)])

    def with_stages(self, subplan: Subplan) -> float:
        """What a subplan costs in all if it is the whole plan."""
        return subplan.cost + self.stage_cost * subplan.stage

    def join(
        self,
        inputs: tuple[StreamMask, ...],
        subplans: Mapping[StreamMask, Subplan],
        limit: float = inf,
        fragment: ClassMask = _UNRESTRICTED,
    ) -> Subplan:
        """The plan that joins subplans in one node, in a fragment that is restricted to some key classes.

        If it costs ``limit`` or more, the cost is given as infinite.
        """
        sets = self.sets
        common = common_classes([sets.classes[one] for one in inputs])
        placing = common & fragment
        if not placing and sum([sets.state_bytes[one] for one in inputs]) > self._max_unplaced_bytes:
            return Subplan(inputs=inputs, cost=inf)
        factor = unplaced_factor(self._partitions, is_placed=bool(placing))
        cost, forwarding, stage = 0.0, 0.0, 0
        same_fragment = []
        for one in inputs:
            subplan = subplans[one]
            if not subplan.inputs:
                cost += sets.input_cost[one] * factor
                forwarding += sets.forwarding_cost[one] * factor
                continue
            merged = fragment_classes(placing, subplan.common)
            if merged is None:
                cost += subplan.cost + sets.input_cost[one] * factor
                stage = max(stage, fragment_stage((subplan.stage,)))
                continue
            if merged and not merged & subplan.placing:
                # A node further down shares no key class with this fragment, and has to leave it.
                subplan = self.join(subplan.inputs, subplans, fragment=placing)
            placing &= subplan.placing
            cost += subplan.cost
            stage = max(stage, subplan.stage)
            same_fragment.append(subplan)
        cost += forwarding * stage
        for subplan in same_fragment:
            cost += subplan.forwarding * (stage - subplan.stage)
            forwarding += subplan.forwarding
        remaining = (limit - cost - self.stage_cost * stage) / factor
        probing = self._probing.get((inputs, placing))
        if probing is None:
            probing = self.probing(inputs, placing, remaining)
            if probing < remaining:
                self._probing[inputs, placing] = probing
        cost += probing * factor
        return Subplan(
            inputs=inputs,
            cost=cost,
            stage=stage,
            common=common,
            placing=placing,
            forwarding=forwarding,
        )

    def probing(self, inputs: Sequence[StreamMask], placing: ClassMask, limit: float = inf) -> float:
        """What the probe steps of a node cost, with the indexes that they search, if no more than a limit.

        From the limit on it may be infinite.
        """
        sets = self.sets
        classes, rates = sets.classes, sets.rate_by_newest
        probe_cost, match_cost, index_cost = sets.probe_cost, sets.match_cost, sets.index_cost
        # If all inputs have the same key classes, none shares more than another: they are probed in order.
        in_order = bool(placing) and placing == classes[sum(inputs)]
        # A placed node has one index of each input; another one has them for the searches that there are.
        cost = sum([index_cost[one] for one in inputs]) if placing else 0.0
        indexes: set[tuple[StreamMask, ClassMask]] = set()
        for new in inputs:
            if cost >= limit:
                return inf
            width, probing = new.bit_count(), new
            rows = rates[new] * width
            waiting = [one for one in inputs if one != new]
            while waiting:
                if in_order:
                    probed = waiting.pop(0)
                else:
                    here = classes[probing]
                    shared = [here & classes[one] for one in waiting]
                    following = next_input([mask.bit_count() for mask in shared])
                    probed = waiting.pop(following)
                    index = probed, search_classes(placing, shared[following])
                    if not placing and index not in indexes:
                        indexes.add(index)
                        cost += index_cost[probed]
                cost += probe_cost[probed] * rows
                probing |= probed
                rows = rates[probing] * width
                cost += match_cost[probed] * rows
        return cost
