"""State locations: where and how a plan stores a state, and which fragment produces its rows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from midstream.plan.layout import Fragment, Key, Layout
from midstream.plan.state_id import StateId


@dataclass(frozen=True)
class StateLocation:
    """Where and how a plan stores a state."""

    state: StateId
    fragment: int
    """The fragment that stores it."""
    key: Key
    arrangements: frozenset[Key]
    is_input: bool
    """Whether its rows enter the fragment; else a node of the fragment produces them."""
    producer: int
    """The fragment whose node produces its rows; of a base state, the fragment that they enter."""
    sources: frozenset[StateId]
    """The inputs of the producing fragment that its rows are joined from."""

    @property
    def refers_to(self) -> frozenset[StateId]:
        """The inputs whose payload the references of its stored rows lead to."""
        return frozenset((self.state,)) if self.is_input else self.sources


def state_locations(layout: Layout) -> Iterator[StateLocation]:
    """The locations of all states of a plan."""
    producers = {node.id.streams: fragment for fragment in layout.fragments for node in fragment.nodes}
    for fragment in layout.fragments:
        for state, keys in fragment.arrangements.items():
            producer = producers.get(state.streams, fragment)
            yield StateLocation(
                state=state,
                fragment=fragment.id,
                key=fragment.key,
                arrangements=frozenset(keys),
                is_input=state in fragment.inputs_by_id,
                producer=producer.id,
                sources=_inputs_within(producer, state),
            )


def _inputs_within(fragment: Fragment, state: StateId) -> frozenset[StateId]:
    streams = set(state.streams)
    return frozenset(input_ for input_ in fragment.inputs_by_id if set(input_.streams) <= streams)
