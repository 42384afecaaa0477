"""The name of a fragment, by which its groups are known in the manifest.

What a fragment owes is defined by the rows that arrive at its inputs, whatever the tree inside of it. So it
is named by the key classes that place it and by the streams of its inputs. Plans that differ only inside of a
fragment have it in common, and a migration between them changes nothing of what is owed.
"""

from __future__ import annotations

from midstream.plan.layout import Fragment, Key, Layout
from midstream.plan.state_id import StateId

FragmentName = str
"""Such as ``0: a b c,d``: placed by key class 0, its inputs are a, b, and rows of another fragment."""


def fragment_name(fragment: Fragment) -> FragmentName:
    """The name of a fragment of a plan."""
    inputs = sorted(input_.id.label for input_ in fragment.inputs)
    return f"{','.join(map(str, fragment.key))}: {' '.join(inputs)}"


def fragment_key(name: FragmentName) -> Key:
    """The key classes that place a fragment."""
    return tuple(int(key_class) for key_class in name.partition(": ")[0].split(",") if key_class)


def fragment_streams(name: FragmentName) -> frozenset[str]:
    """The streams whose rows a fragment joins."""
    return frozenset(name.partition(": ")[2].replace(" ", ",").split(","))


def joins_state(name: FragmentName, state: StateId, key: Key) -> bool:
    """Whether a state is that of an input of a fragment, arranged by the key that places it."""
    return key == fragment_key(name) and state.label in name.partition(": ")[2].split(" ")


def fragment_output(fragment: Fragment) -> StateId:
    """The id of the rows that a fragment of a plan produces: results, or an input of another fragment."""
    return max((node.id for node in fragment.nodes), key=lambda state: len(state.streams))


def same_fragments(old: Layout, new: Layout) -> bool:
    """Whether two plans have the same fragments, with the same states at their inputs."""
    return _inputs_of(old) == _inputs_of(new)


def _inputs_of(layout: Layout) -> set[tuple[FragmentName, frozenset[StateId]]]:
    return {(fragment_name(f), frozenset(f.inputs_by_id)) for f in layout.fragments}
