"""The layout of a plan: which nodes run where, what each state is searched by, what each row must carry.

Nodes that are placed by the same key classes form a **fragment**, which runs as one Spark stage; between
fragments rows are shuffled again. ``plan/placing.py`` lays plans out; this is what comes of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

from midstream.plan.tree import Plan
from midstream.query.query import Query
from midstream.query.stream import ColumnRef

Key = tuple[int, ...]
"""Ids of key classes whose values are hashed together; empty where nothing is shared."""

StateId = str
"""The streams of a state's tuples in the query's order, joined by commas: ``orders,payments``.

A state that a migration had to begin anew has its number as well: ``orders,payments@3``.
"""

Bounds = tuple[tuple[str, int], ...]
"""Streams with an epoch each: rows whose component of every stream among them arrived before its epoch."""

Side = Literal["both", "old", "new"]
"""Which plan of a migration a node belongs to; outside of one, all nodes belong to both."""


@dataclass(frozen=True, slots=True)
class Probe:
    """One step of extending rows by another input: search by ``key``, then compare what a hash cannot."""

    input: StateId
    key: Key
    verify: Key
    residuals: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Restriction:
    """Only rows that lie within one of the bounds are made."""

    bounds: tuple[Bounds, ...]
    early: bool
    """Whether rows are dropped as soon as nothing that they become can lie within; else only at the end."""


@dataclass(frozen=True, slots=True)
class Node:
    """An m-way join: for each input, the order in which its new rows probe the others."""

    id: StateId
    inputs: tuple[StateId, ...]
    probes: tuple[tuple[Probe, ...], ...]
    restriction: Restriction | None = None
    side: Side = "both"

    def renamed(self, names: Mapping[StateId, StateId]) -> Node:
        """The node with other ids for some of its states."""
        probes = tuple(
            tuple(replace(probe, input=names.get(probe.input, probe.input)) for probe in order)
            for order in self.probes
        )
        inputs = tuple(names.get(state, state) for state in self.inputs)
        return replace(self, id=names.get(self.id, self.id), inputs=inputs, probes=probes)

    def retention_bounds(self, state: StateId) -> tuple[Bounds, ...] | None:
        """What rows of an input must lie within to be of use once they are kept; None if all are.

        They wait for rows of the other inputs that are yet to come, with a component beyond every bound.
        """
        if self.restriction is None or not self.restriction.early:
            return None
        return tuple(bound for bound in self.restriction.bounds if self.needs_future_rows(state, dict(bound)))

    def needs_future_rows(self, state: StateId, streams: Iterable[str]) -> bool:
        """Whether kept rows of an input wait for any component but those of some streams."""
        others = (other for other in self.inputs if other != state)
        return any(not set(streams_of(other)) <= set(streams) for other in others)

    def arrangements(self, state: StateId, key: Key) -> tuple[Key, ...]:
        """The keys by which an input's state is searched; placed nodes search by their own key."""
        if key:
            return (key,)
        wanted = (p.key for probes in self.probes for p in probes if p.input == state)
        return tuple(dict.fromkeys(wanted))


@dataclass(frozen=True, slots=True)
class FragmentInput:
    """What enters a fragment: a stream, or the rows that a fragment below has joined."""

    id: StateId
    streams: tuple[str, ...]
    columns: tuple[str, ...]
    """Names of the payload columns that may be needed from here on (see :func:`column_name`)."""
    owned: bool = True
    """Whether this fragment keeps what enters; one of an earlier stage may keep the same rows already."""

    @property
    def is_stream(self) -> bool:
        """Whether rows enter here for the first time."""
        return len(self.streams) == 1


@dataclass(frozen=True)
class Fragment:
    """Nodes that are placed by the same key and run in one stage, lowest first."""

    id: int
    key: Key
    stage: int
    inputs: tuple[FragmentInput, ...]
    nodes: tuple[Node, ...]
    copies: tuple[tuple[StateId, StateId], ...] = ()
    """States that get the same new rows as another: (the other, the copy)."""

    @cached_property
    def by_id(self) -> dict[StateId, FragmentInput]:
        """The inputs by their ids."""
        return {one.id: one for one in self.inputs}

    def renamed(self, names: Mapping[StateId, StateId]) -> Fragment:
        """The fragment with other ids for some of its states."""
        inputs = tuple(replace(one, id=names.get(one.id, one.id)) for one in self.inputs)
        return replace(self, inputs=inputs, nodes=tuple(node.renamed(names) for node in self.nodes))

    @cached_property
    def arrangements(self) -> dict[StateId, tuple[Key, ...]]:
        """By which keys each state of the fragment is searched."""
        found: dict[StateId, tuple[Key, ...]] = {}
        for node in self.nodes:
            for state in node.inputs:
                keys = (*found.get(state, ()), *node.arrangements(state, self.key))
                found[state] = tuple(dict.fromkeys(keys))
        return found


@dataclass(frozen=True)
class Layout:
    """A plan, laid out: its fragments in the order in which they run."""

    plan: Plan
    fragments: tuple[Fragment, ...]

    @property
    def stages(self) -> int:
        """How many Spark stages run after the sources are read."""
        return 1 + max(fragment.stage for fragment in self.fragments)

    @cached_property
    def root(self) -> StateId:
        """What the results are called; no state holds them."""
        return max((node.id for f in self.fragments for node in f.nodes), key=lambda s: len(streams_of(s)))

    @cached_property
    def fragment_inputs(self) -> dict[StateId, Fragment]:
        """Which fragment takes in what enters one; the first, if several do."""
        return {one.id: f for f in reversed(self.fragments) for one in f.inputs}

    @cached_property
    def states(self) -> frozenset[StateId]:
        """All states."""
        return frozenset(s for f in self.fragments for s in (*f.arrangements, *f.by_id))

    @cached_property
    def retention_bounds(self) -> dict[StateId, tuple[Bounds, ...]]:
        """States of which only rows within some bounds are worth keeping: all their nodes are restricted."""
        # What is copied is all there is for the new plan after the migration.
        found: dict[StateId, tuple[Bounds, ...] | None] = {
            original: None for fragment in self.fragments for original, _ in fragment.copies
        }
        for node in (node for fragment in self.fragments for node in fragment.nodes):
            for state in node.inputs:
                mine, others = node.retention_bounds(state), found.get(state, ())
                found[state] = None if mine is None or others is None else (*others, *mine)
        return {state: bounds for state, bounds in found.items() if bounds is not None}

    def renamed(self, names: Mapping[StateId, StateId]) -> Layout:
        """The layout with other ids for some of its states."""
        return replace(self, fragments=tuple(fragment.renamed(names) for fragment in self.fragments))

    @cached_property
    def counted(self) -> frozenset[StateId]:
        """The entrances at which rows of streams are counted, one for each stream: where they are kept."""
        first = {streams_of(state): state for state in reversed(self.fragment_inputs)}
        return frozenset(state for streams, state in first.items() if len(streams) == 1)


def column_name(ref: ColumnRef) -> str:
    """The payload column of a user's column."""
    return str(ref)


def key_column(stream: str, key_class: int) -> str:
    """The payload column of a stream's value of a key class, in the type of the class."""
    return f"{stream}#k{key_class}"


def epoch_column(stream: str) -> str:
    """The payload column, in combined rows, of the epoch in which a component arrived."""
    return f"{stream}#epoch"


def state_id(query: Query, streams: Iterable[str]) -> StateId:
    """The id of the state whose tuples have rows of ``streams``."""
    members = set(streams)
    return ",".join(name for name in query.names if name in members)


def restarted(state: StateId, number: int) -> StateId:
    """The id that a state has which migration ``number`` begins anew."""
    return f"{plain(state)}@{number}"


def streams_of(state: StateId) -> tuple[str, ...]:
    """The streams of a state."""
    return tuple(state.partition("@")[0].split(","))


def plain(state: StateId) -> StateId:
    """The streams of a state as people write them, without the number of a migration."""
    return ",".join(streams_of(state))


def representative(query: Query, streams: Iterable[str], key_class: int) -> str:
    """The stream whose column stands for the class in rows of ``streams``: the first that has one."""
    members = set(streams) & query.classes[key_class].streams
    return next(name for name in query.names if name in members)
