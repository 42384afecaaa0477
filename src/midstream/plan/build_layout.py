"""Laying a plan out: which nodes can run together, and what rows must carry into each of them.

Rows meet in an engine partition only if one hash decides where both go. So a node is *placed* by key
classes that all its inputs have; neighbouring nodes that can be placed by the same classes form a
fragment.

A node whose inputs have no class in common (a cross join, or an m-way node over a chain of keys) is
placed *nowhere in particular*: all its rows go to one engine partition, where its states are searched by
whatever classes the probing rows share with them.
"""

from __future__ import annotations

from midstream.plan.layout import (
    Fragment,
    FragmentInput,
    Key,
    Layout,
    Node,
    Probe,
    column_name,
    epoch_column,
    key_column,
    representative,
    state_of,
)
from midstream.plan.placement import (
    fragment_classes,
    fragment_stage,
    next_input,
    search_classes,
    spanning_classes,
)
from midstream.plan.tree import Plan
from midstream.query.query import Query


def build_layout(query: Query, plan: Plan) -> Layout:
    """Group the nodes of a plan into fragments and find out what each of them needs."""
    groups = _group(query, plan)
    fragments: list[Fragment] = []
    for number, group in enumerate(groups):
        stage = fragment_stage(fragments[i].stage for i, other in enumerate(groups) if other.above is group)
        nodes = tuple(_node(query, node, group.key) for node in group.nodes)
        inputs = _inputs(query, group)
        fragments.append(Fragment(number, group.key, stage, inputs, nodes))
    return Layout(plan, tuple(fragments))


class _Group:
    """The nodes of a future fragment; ``above`` is the group that takes the rows that this one makes."""

    def __init__(self, classes: frozenset[int], above: _Group | None) -> None:
        self.classes = classes
        self.above = above
        self.nodes: list[Plan] = []

    @property
    def key(self) -> Key:
        return tuple(sorted(self.classes))


def _group(query: Query, plan: Plan) -> list[_Group]:
    """Walk down from the root; a child joins its parent's group while a shared key remains."""
    ordered: list[_Group] = []

    def visit(node: Plan, parent: _Group | None) -> None:
        spanning = spanning_classes(query.classes_of(child.streams) for child in node.inputs)
        merged = None if parent is None else fragment_classes(parent.classes, spanning)
        if parent is None or merged is None:
            group = _Group(spanning, parent)
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
    here = [
        i
        for i, residual in enumerate(query.residuals)
        if residual.streams <= node.streams
        and not any(residual.streams <= child.streams for child in node.inputs)
    ]
    return Node(
        state_of(query, node.streams),
        tuple(state_of(query, child.streams) for child in node.inputs),
        tuple(_probes(query, node, head, key, here) for head in node.inputs),
    )


def _probes(query: Query, node: Plan, head: Plan, key: Key, residuals: list[int]) -> tuple[Probe, ...]:
    """Extend the head's rows by the input that shares most with them, until all inputs are there."""
    seen = head.streams
    waiting = [child for child in node.inputs if child is not head]
    open_residuals = list(residuals)
    probes: list[Probe] = []
    while waiting:
        shared = [query.classes_of(seen) & query.classes_of(child.streams) for child in waiting]
        following = next_input([len(classes) for classes in shared])
        child, common = waiting.pop(following), shared[following]
        search = tuple(sorted(search_classes(frozenset(key), common)))
        exact = len(search) == 1 and query.classes[search[0]].exact_hash
        seen = seen | child.streams
        ready = tuple(i for i in open_residuals if query.residuals[i].streams <= seen)
        open_residuals = [i for i in open_residuals if i not in ready]
        verify = tuple(sorted(common - set(search))) if exact else tuple(sorted(common))
        probes.append(Probe(state_of(query, child.streams), search, verify, ready))
    return tuple(probes)


def _inputs(query: Query, group: _Group) -> tuple[FragmentInput, ...]:
    members = {id(node) for node in group.nodes}
    entering = (c for node in group.nodes for c in node.inputs if id(c) not in members)
    states = [state_of(query, child.streams) for child in entering]
    return tuple(FragmentInput(state, _payload_columns(query, state.streams)) for state in states)


def _payload_columns(query: Query, streams: tuple[str, ...]) -> tuple[str, ...]:
    """Payload columns that rows of ``streams`` must carry for whatever may be joined to them.

    The same in every plan: what one plan has stored, another must be able to go on with.
    """
    here = frozenset(streams)
    refs = {output.ref for output in query.outputs if output.ref.stream in here}
    for residual in query.residuals:
        if not residual.streams <= here:
            refs.update(ref for ref in residual.columns if ref.stream in here)
    # If one class places every node and its hash says it all, nobody ever looks at the values.
    only = len(query.classes) == 1 and query.classes[0].streams >= frozenset(query.names)
    looked_at = [c for c in query.classes if not (only and c.exact_hash)]
    keys = {
        key_column(representative(query, streams, c.id), c.id)
        for c in looked_at
        if c.streams & here and not c.streams <= here
    }
    epochs = {epoch_column(stream) for stream in streams} if len(streams) > 1 else set()
    return tuple(sorted(keys | epochs | {column_name(ref) for ref in refs}))
