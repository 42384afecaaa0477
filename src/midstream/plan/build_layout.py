"""Building the layout of a plan: which nodes run in one fragment, and which columns rows must carry there.

Rows meet in an engine partition only if one hash decides where both go. So a node is *placed* by key
classes that all its inputs have; neighbouring nodes that can be placed by the same classes form a
fragment.

If the inputs of a node have no class in common (a cross join, or an m-way node over a chain of keys), all
its rows go to one engine partition, where each state is searched by the classes that the probing rows share
with it.
"""

from __future__ import annotations

from midstream.plan.fragment_name import fragment_output
from midstream.plan.layout import Fragment, FragmentInput, Key, Layout, Node, Probe, state_of
from midstream.plan.payload_columns import payload_columns
from midstream.plan.placement import common_classes, fragment_classes, fragment_stage, next_input
from midstream.plan.probe import make_probe
from midstream.plan.sited_layout import build_sited_layout, check_kind
from midstream.plan.tree import Plan, join, left_deep
from midstream.query.query import Query


def build_layout(query: Query, plan: Plan) -> Layout:
    """Group the nodes of a plan into fragments, with their stages, inputs and probe orders."""
    check_kind(query, plan)
    if query.topology is not None:
        return build_sited_layout(query, plan, query.topology)
    groups = _group_nodes(query, plan)
    fragments: list[Fragment] = []
    for number, group in enumerate(groups):
        stage = fragment_stage(
            fragments[i].stage for i, other in enumerate(groups) if other.receiver is group
        )
        nodes = tuple(_node(query, node, group.key) for node in group.nodes)
        inputs = _inputs(query, group)
        fragments.append(Fragment(number, group.key, stage, inputs, nodes))
    return Layout(plan, tuple(fragments))


def joined_inputs(query: Query, fragment: Fragment) -> Node:
    """One node over all inputs of a fragment of a plan: it produces the same rows as the fragment's tree."""
    inputs = join(*(left_deep(input_.streams) for input_ in fragment.inputs))
    states = (*fragment.inputs_by_id, fragment_output(fragment))
    return _node(query, inputs, fragment.key).renamed({state_of(query, s.streams): s for s in states})


class _Group:
    """The nodes of a fragment; ``receiver`` is the group that its rows are sent to."""

    def __init__(self, classes: frozenset[int], receiver: _Group | None) -> None:
        self.classes = classes
        self.receiver = receiver
        self.nodes: list[Plan] = []

    @property
    def key(self) -> Key:
        return tuple(sorted(self.classes))


def _group_nodes(query: Query, plan: Plan) -> list[_Group]:
    """Walk down from the root; a child joins its parent's group while they have a class in common."""
    ordered: list[_Group] = []

    def visit(node: Plan, parent: _Group | None) -> None:
        common = common_classes(query.classes_of(child.streams) for child in node.inputs)
        merged = None if parent is None else fragment_classes(parent.classes, common)
        if parent is None or merged is None:
            group = _Group(common, parent)
        else:
            group = parent
            group.classes = merged
        for child in node.inputs:
            if child.inputs:
                visit(child, group)
        group.nodes.append(node)
        if group is not parent:
            ordered.append(group)

    visit(plan, None)
    return ordered


def _node(query: Query, node: Plan, key: Key) -> Node:
    residuals = [
        i
        for i, residual in enumerate(query.residuals)
        if residual.streams <= node.streams
        and not any(residual.streams <= child.streams for child in node.inputs)
    ]
    return Node(
        state_of(query, node.streams),
        tuple(state_of(query, child.streams) for child in node.inputs),
        tuple(_probes(query, node, head, key, residuals) for head in node.inputs),
    )


def _probes(query: Query, node: Plan, head: Plan, key: Key, residuals: list[int]) -> tuple[Probe, ...]:
    """The probe order of input ``head``; next is the input that shares most classes with the rows so far."""
    joined = head.streams
    remaining = [child for child in node.inputs if child is not head]
    open_residuals = list(residuals)
    probes: list[Probe] = []
    while remaining:
        shared = [query.classes_of(joined) & query.classes_of(child.streams) for child in remaining]
        child = remaining.pop(next_input([len(classes) for classes in shared]))
        probe = make_probe(query, joined, state_of(query, child.streams), key, open_residuals)
        open_residuals = [i for i in open_residuals if i not in probe.residuals]
        joined = joined | child.streams
        probes.append(probe)
    return tuple(probes)


def _inputs(query: Query, group: _Group) -> tuple[FragmentInput, ...]:
    members = {id(node) for node in group.nodes}
    entering = (c for node in group.nodes for c in node.inputs if id(c) not in members)
    states = [state_of(query, child.streams) for child in entering]
    return tuple(FragmentInput(state, payload_columns(query, state.streams)) for state in states)
