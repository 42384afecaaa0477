"""The layout of a plan: where its nodes run, by which keys states are searched, which columns rows carry.

Nodes that are placed by the same key classes form a **fragment**, which runs in one Spark stage; between
fragments, rows are shuffled. ``plan/build_layout.py`` builds layouts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from midstream.plan.state_id import StateId
from midstream.plan.tree import Plan
from midstream.query.network import Site
from midstream.query.query import Query
from midstream.query.stream import ColumnRef

Key = tuple[int, ...]
"""Ids of key classes whose values are hashed together; empty if inputs have no class in common."""


@dataclass(frozen=True, slots=True)
class Probe:
    """One step of a probe order: rows are extended by the matching rows of another input."""

    input: StateId
    key: Key
    """The key by which the input's state is searched."""
    verify: Key
    """Key classes whose values are compared, because equal hashes do not imply that they are equal."""
    residuals: tuple[int, ...]
    """The residuals that can be checked from here on, as positions in the query."""


@dataclass(frozen=True, slots=True)
class Node:
    """An m-way join, with a probe order for each input."""

    id: StateId
    inputs: tuple[StateId, ...]
    probes: tuple[tuple[Probe, ...], ...]
    """For each input in which order its new rows probe the others; nothing if they are only probed here."""

    def __hash__(self) -> int:
        """Every step looks its nodes up, and their probes are many values."""
        return hash((self.id, self.inputs))

    def renamed(self, ids: Mapping[StateId, StateId]) -> Node:
        """The node with new ids for some of its states."""
        probes = tuple(
            tuple(replace(probe, input=ids.get(probe.input, probe.input)) for probe in order)
            for order in self.probes
        )
        inputs = tuple(ids.get(state, state) for state in self.inputs)
        return replace(self, id=ids.get(self.id, self.id), inputs=inputs, probes=probes)

    def arrangements(self, state: StateId, key: Key) -> tuple[Key, ...]:
        """The keys by which an input's state is searched; only ``key``, the fragment's, if there is one."""
        if key:
            return (key,)
        searched_by = (p.key for probes in self.probes for p in probes if p.input == state)
        return tuple(dict.fromkeys(searched_by))


@dataclass(frozen=True, slots=True)
class FragmentInput:
    """What enters a fragment: a stream, or the rows of another fragment."""

    id: StateId
    columns: tuple[str, ...]
    """The payload columns that later joins or outputs may need (see :func:`column_name`)."""

    @property
    def streams(self) -> tuple[str, ...]:
        """The streams whose rows it brings."""
        return self.id.streams

    @property
    def is_stream(self) -> bool:
        """Whether its rows come from a source, not from another fragment."""
        return self.id.is_base


@dataclass(frozen=True)
class Fragment:
    """Nodes that are placed by the same key and run in one stage, lowest first."""

    id: int
    key: Key
    stage: int
    inputs: tuple[FragmentInput, ...]
    nodes: tuple[Node, ...]
    site: Site = ""
    """Where it runs, if streams live at sites."""
    stored_windows: tuple[tuple[StateId, tuple[Key, ...]], ...] = ()
    """At a site: the windows that it stores, each with the keys by which it is searched. Other fragments of
    the site, in later stages, search them as well."""
    counted_inputs: frozenset[StateId] = frozenset()
    """At a site: the inputs that are counted here, those of streams that live here."""

    @cached_property
    def inputs_by_id(self) -> dict[StateId, FragmentInput]:
        """The inputs by their ids."""
        return {input_.id: input_ for input_ in self.inputs}

    @cached_property
    def streams(self) -> tuple[str, ...]:
        """The streams whose rows enter it."""
        return tuple(dict.fromkeys(stream for input_ in self.inputs for stream in input_.streams))

    def renamed(self, ids: Mapping[StateId, StateId]) -> Fragment:
        """The fragment with new ids for some of its states."""
        inputs = tuple(replace(input_, id=ids.get(input_.id, input_.id)) for input_ in self.inputs)
        return replace(
            self,
            inputs=inputs,
            nodes=tuple(node.renamed(ids) for node in self.nodes),
            stored_windows=tuple((ids.get(state, state), keys) for state, keys in self.stored_windows),
            counted_inputs=frozenset(ids.get(state, state) for state in self.counted_inputs),
        )

    def searched_by(self, state: StateId) -> tuple[Key, ...]:
        """The keys by which a state is searched here, whether or not it is stored by this fragment."""
        if state in self.arrangements:
            return self.arrangements[state]
        return tuple(dict.fromkeys(key for n in self.nodes for key in n.arrangements(state, self.key)))

    @cached_property
    def arrangements(self) -> dict[StateId, tuple[Key, ...]]:
        """The keys by which each state that the fragment stores is searched."""
        if self.site:
            return dict(self.stored_windows)
        keys_of: dict[StateId, tuple[Key, ...]] = {}
        for node in self.nodes:
            for state in node.inputs:
                keys = (*keys_of.get(state, ()), *node.arrangements(state, self.key))
                keys_of[state] = tuple(dict.fromkeys(keys))
        return keys_of


@dataclass(frozen=True)
class Layout:
    """All fragments of a plan, each after those that send it rows."""

    plan: Plan
    fragments: tuple[Fragment, ...]
    sink: Fragment | None = None
    """The fragment that all results go to, at the site of the sink, if streams live at sites."""

    @property
    def stages(self) -> int:
        """How many Spark stages run after the sources are read."""
        return 1 + max(fragment.stage for fragment in self.fragments)

    @property
    def nodes(self) -> Iterator[Node]:
        """The nodes of all fragments."""
        return (node for fragment in self.fragments for node in fragment.nodes)

    @property
    def unplaced_nodes(self) -> Iterator[Node]:
        """The nodes that no key places: all their rows are in one engine partition, of all sites."""
        unplaced = (f for f in self.fragments if not f.key and not f.site)
        return (node for fragment in unplaced for node in fragment.nodes)

    @cached_property
    def root(self) -> StateId:
        """The id of the results; no state stores them."""
        return max((node.id for node in self.nodes), key=lambda state: len(state.streams))

    @cached_property
    def result_fragments(self) -> tuple[Fragment, ...]:
        """The fragments that produce results: one, or two while two plans run side by side."""
        return tuple(f for f in self.fragments if any(node.id == self.root for node in f.nodes))

    @cached_property
    def fragment_of_input(self) -> dict[StateId, Fragment]:
        """For each input of a fragment, that fragment; the first, if the input enters several."""
        return {input_.id: f for f in reversed(self.fragments) for input_ in f.inputs}

    @cached_property
    def states(self) -> frozenset[StateId]:
        """All states. At sites, rows may enter that are not stored: they only go on from there."""
        stored = (s for f in self.fragments for s in f.arrangements)
        return frozenset(stored).union(*(f.inputs_by_id for f in self.fragments if not f.site))

    @property
    def unused_number(self) -> int:
        """A number for a migration that is only considered: none of the states was started by one of it."""
        return 1 + max(state.migration for state in self.states)

    def renamed(self, ids: Mapping[StateId, StateId]) -> Layout:
        """The layout with new ids for some of its states."""
        return replace(
            self,
            fragments=tuple(fragment.renamed(ids) for fragment in self.fragments),
            sink=None if self.sink is None else self.sink.renamed(ids),
        )


def column_name(ref: ColumnRef) -> str:
    """The payload column that holds a column of a source."""
    return str(ref)


def key_column(stream: str, key_class: int) -> str:
    """The payload column that holds a stream's values of a key class, in the type of the class."""
    return f"{stream}#k{key_class}"


def epoch_column(stream: str) -> str:
    """The payload column, of combined rows, that holds the epochs in which a stream's component arrived."""
    return f"{stream}#epoch"


def state_of(query: Query, streams: Iterable[str]) -> StateId:
    """The id of the state whose rows combine rows of ``streams``."""
    members = set(streams)
    return StateId.of(name for name in query.names if name in members)


def representative(query: Query, streams: Iterable[str], key_class: int) -> str:
    """The stream whose column stands for the class in rows of ``streams``: the first that has one."""
    members = set(streams) & query.classes[key_class].streams
    return next(name for name in query.names if name in members)
