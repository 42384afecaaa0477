"""Placement rules: which key classes place a node, which nodes form a fragment, what is probed next.

The layout that is run (``plan/build_layout.py``) and the search that compares layouts without building them
(``adapt/optimizer.py``) both follow these rules. A set of key classes is a frozen set of ids or, in the
search, a bit mask: both have the ``&`` and the truth value that the rules need.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import reduce
from operator import and_
from typing import TypeVar

Classes = TypeVar("Classes", int, frozenset[int])


def common_classes(inputs: Iterable[Classes]) -> Classes:
    """The key classes that all inputs of a node have: their hash sends matching rows to one partition."""
    return reduce(and_, inputs)


def fragment_classes(fragment: Classes, common: Classes) -> Classes | None:
    """The key classes that place a fragment once it also has a node with these spanning classes.

    None if the node needs a fragment of its own: rows are shuffled between two nodes unless one key places
    both, or both have all their rows in one partition.
    """
    shared = fragment & common
    return shared if shared or not (fragment or common) else None


def fragment_stage(stages_below: Iterable[int]) -> int:
    """The stage of a fragment: right after the last of the fragments whose rows it takes."""
    return 1 + max(stages_below, default=-1)


def search_classes(placing: Classes, shared: Classes) -> Classes:
    """The key classes by which a state is searched, given those that the probing rows share with it.

    A placed node searches by the classes that place it, so that each of its states is sorted in one way only.
    """
    return placing or shared


def next_input(shared_classes: Sequence[int]) -> int:
    """Which of the inputs is probed next, given how many key classes each shares with the probing rows.

    The one that shares most, and the first of several: where nothing is shared the step is a cross product.
    """
    return shared_classes.index(max(shared_classes))
