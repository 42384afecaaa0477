"""The layout of a plan: which nodes run where, what each state is searched by, what each row must carry.

Rows meet in an engine partition only if one hash decides where both go. So a node is *placed* by key
classes that all its inputs have; neighbouring nodes that can be placed by the same classes form a
**fragment**, which runs as one Spark stage, and between fragments rows are shuffled again.

A node whose inputs have no class in common (a cross join, or an m-way node over a chain of keys) is
placed *nowhere in particular*: all its rows go to one engine partition, where its states are searched by
whatever classes the probing rows share with them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from midstream.plan.tree import Plan
from midstream.query.query import Query
from midstream.query.stream import ColumnRef

Key = tuple[int, ...]
"""Ids of key classes whose values are hashed together; empty where nothing is shared."""

StateId = str
"""The streams of a state's tuples in the query's order, joined by commas: ``orders,payments``."""


@dataclass(frozen=True, slots=True)
class Probe:
    """One step of extending rows by another input: search by ``key``, then compare what a hash cannot."""

    input: StateId
    key: Key
    verify: Key
    residuals: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Node:
    """An m-way join: for each input, the order in which its new rows probe the others."""

    id: StateId
    inputs: tuple[StateId, ...]
    probes: tuple[tuple[Probe, ...], ...]

    def arrangements(self, state: StateId, key: Key) -> tuple[Key, ...]:
        """The keys by which an input's state is searched; placed nodes search by their own key."""
        if key:
            return (key,)
        wanted = (p.key for probes in self.probes for p in probes if p.input == state)
        return tuple(dict.fromkeys(wanted))


@dataclass(frozen=True, slots=True)
class FragmentInput:
    """What enters a fragment: a stream, or the rows that the fragment below has joined."""

    id: StateId
    streams: tuple[str, ...]
    columns: tuple[str, ...]
    """Names of the payload columns that this fragment or one above it needs (see :func:`column_name`)."""
    fragment: int | None
    """The fragment that produces it; None for a stream."""


@dataclass(frozen=True)
class Fragment:
    """Nodes that are placed by the same key and run in one stage, lowest first."""

    id: int
    key: Key
    stage: int
    inputs: tuple[FragmentInput, ...]
    nodes: tuple[Node, ...]
    parent: int | None

    @property
    def root(self) -> StateId:
        """The state id of what the fragment produces."""
        return self.nodes[-1].id

    @cached_property
    def by_id(self) -> dict[StateId, FragmentInput]:
        """The inputs by their ids."""
        return {one.id: one for one in self.inputs}


@dataclass(frozen=True)
class Layout:
    """A plan, laid out: its fragments in the order in which they run."""

    plan: Plan
    fragments: tuple[Fragment, ...]

    @property
    def stages(self) -> int:
        """How many Spark stages run after the sources are read."""
        return 1 + max(fragment.stage for fragment in self.fragments)

    def fragment_of_stream(self, stream: str) -> Fragment:
        """The fragment that a stream enters."""
        return next(f for f in self.fragments for one in f.inputs if one.id == stream)


def column_name(ref: ColumnRef) -> str:
    """The payload column of a user's column."""
    return str(ref)


def key_column(stream: str, key_class: int) -> str:
    """The payload column of a stream's value of a key class, in the type of the class."""
    return f"{stream}#k{key_class}"


def state_id(query: Query, streams: Iterable[str]) -> StateId:
    """The id of the state whose tuples have rows of ``streams``."""
    members = set(streams)
    return ",".join(name for name in query.names if name in members)


def streams_of(state: StateId) -> tuple[str, ...]:
    """The streams of a state."""
    return tuple(state.split(","))


def representative(query: Query, streams: Iterable[str], key_class: int) -> str:
    """The stream whose column stands for the class in rows of ``streams``: the first that has one."""
    members = set(streams) & query.classes[key_class].streams
    return next(name for name in query.names if name in members)


def lay_out(query: Query, plan: Plan) -> Layout:
    """Group the nodes of a plan into fragments and find out what each of them needs."""
    groups = _group(query, plan)
    fragments: list[Fragment] = []
    for number, group in enumerate(groups):
        parent = next((i for i, other in enumerate(groups) if group.below is other), None)
        below = [i for i, other in enumerate(groups) if other.below is group]
        stage = 1 + max((fragments[i].stage for i in below), default=-1)
        nodes = tuple(_node(query, node, group.key) for node in group.nodes)
        inputs = _inputs(query, group, groups)
        fragments.append(Fragment(number, group.key, stage, inputs, nodes, parent))
    return Layout(plan, tuple(fragments))


class _Group:
    """A fragment in the making; ``below`` is the group that takes what this one produces."""

    def __init__(self, key: frozenset[int], below: _Group | None) -> None:
        self.classes = key
        self.below = below
        self.nodes: list[Plan] = []

    @property
    def key(self) -> Key:
        return tuple(sorted(self.classes))


def _group(query: Query, plan: Plan) -> list[_Group]:
    """Walk down from the root; a child joins its parent's group while a shared key remains."""
    ordered: list[_Group] = []

    def visit(node: Plan, parent: _Group | None) -> None:
        spanning = frozenset.intersection(*(query.classes_of(c.streams) for c in node.inputs))
        shared = parent.classes & spanning if parent else frozenset()
        alike = parent is not None and (bool(shared) or not (parent.classes or spanning))
        group = parent if parent is not None and alike else _Group(spanning, parent)
        if alike:
            group.classes = shared
        for child in node.inputs:
            if child.inputs:
                visit(child, group)
        group.nodes.append(node)
        if not alike:
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
        state_id(query, node.streams),
        tuple(state_id(query, child.streams) for child in node.inputs),
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
        best = max(range(len(waiting)), key=lambda i: (len(shared[i]), -i))
        child, common = waiting.pop(best), shared[best]
        search = key or tuple(sorted(common))
        exact = len(search) == 1 and query.classes[search[0]].exact_hash
        seen = seen | child.streams
        ready = tuple(i for i in open_residuals if query.residuals[i].streams <= seen)
        open_residuals = [i for i in open_residuals if i not in ready]
        verify = tuple(sorted(common - set(search))) if exact else tuple(sorted(common))
        probes.append(Probe(state_id(query, child.streams), search, verify, ready))
    return tuple(probes)


def _inputs(query: Query, group: _Group, groups: list[_Group]) -> tuple[FragmentInput, ...]:
    members = {id(node) for node in group.nodes}
    children = [c for node in group.nodes for c in node.inputs if id(c) not in members]
    found = []
    for child in children:
        producer = next((i for i, g in enumerate(groups) if child.inputs and g.nodes[-1] is child), None)
        streams = tuple(name for name in query.names if name in child.streams)
        columns = _needed(query, streams, group)
        found.append(FragmentInput(state_id(query, streams), streams, columns, producer))
    return tuple(found)


def _needed(query: Query, streams: tuple[str, ...], group: _Group) -> tuple[str, ...]:
    """Payload columns that rows of ``streams`` must carry into ``group`` for it and all above it."""
    refs = {output.ref for output in query.outputs}
    classes: set[int] = set()
    above: _Group | None = group
    while above is not None:
        for plan in above.nodes:
            node = _node(query, plan, above.key)
            for probe in (p for probes in node.probes for p in probes):
                refs.update(r for i in probe.residuals for r in query.residuals[i].columns)
                classes.update(probe.verify if above.key else (*probe.verify, *probe.key))
        above = above.below
        if above is not None:
            classes.update(above.key)
    keys = {
        key_column(representative(query, streams, c), c)
        for c in classes & query.classes_of(frozenset(streams))
    }
    return tuple(sorted(keys | {column_name(ref) for ref in refs if ref.stream in streams}))
