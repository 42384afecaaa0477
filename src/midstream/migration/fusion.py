"""Fusing fragments of two plans, so that they run as one fragment, in one stage.

Fragments that store the same combined rows must be fused: only then are the rows that each plan produces for
a state merged in one task. Others with the same key may be fused. A fragment runs after those that send it
rows, those of the other plan included, so fragments can be fused only if that leads to no cycle.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from midstream.errors import InternalError
from midstream.plan.layout import Fragment, Layout

Pair = tuple[int, int]
"""The ids of a fragment of the old plan and one of the new plan."""

FragmentOf = tuple[Literal["old", "new"], int]
"""The plan and the id of a fragment."""


@dataclass(frozen=True, slots=True)
class FusionConstraints:
    """What two plans that run side by side require of their fragments."""

    pairs: tuple[Pair, ...] = ()
    """Fragments that must be fused."""
    edges: tuple[tuple[FragmentOf, FragmentOf], ...] = ()
    """Fragments of one plan that send rows to fragments of the other."""

    def __add__(self, other: FusionConstraints) -> FusionConstraints:
        return FusionConstraints(self.pairs + other.pairs, self.edges + other.edges)


@dataclass(frozen=True)
class FusedFragment:
    """Fragments that run as one, and their stage."""

    stage: int
    old: tuple[Fragment, ...]
    new: tuple[Fragment, ...]


def can_fuse(old: Layout, new: Layout, constraints: FusionConstraints) -> bool:
    """Whether the fragments can be linked in this way."""
    return _fuse(old, new, constraints) is not None


def fused_fragments(old: Layout, new: Layout, constraints: FusionConstraints) -> list[FusedFragment]:
    """The fragments of both plans: linked as required, and others of the same key fused where possible."""
    for new_fragment in new.fragments:
        for old_fragment in old.fragments:
            pair = old_fragment.id, new_fragment.id
            same_key = new_fragment.key == old_fragment.key
            if same_key and pair not in constraints.pairs:
                with_pair = constraints + FusionConstraints(pairs=(pair,))
                constraints = with_pair if can_fuse(old, new, with_pair) else constraints
    fused = _fuse(old, new, constraints)
    if fused is None:
        raise InternalError(
            "the fragments of two plans must be linked without a cycle", got=f"{old.plan} and {new.plan}"
        )
    return fused


def _fuse(old: Layout, new: Layout, constraints: FusionConstraints) -> list[FusedFragment] | None:
    groups: list[set[FragmentOf]] = [{("old", f.id)} for f in old.fragments]
    groups += [{("new", f.id)} for f in new.fragments]
    for old_id, new_id in constraints.pairs:
        first = next(group for group in groups if ("old", old_id) in group)
        second = next(group for group in groups if ("new", new_id) in group)
        if first is not second:
            groups.remove(second)
            first |= second
    edges = {
        (_index(groups, sender), _index(groups, receiver))
        for sender, receiver in (*_edges("old", old), *_edges("new", new), *constraints.edges)
    }
    stages = _stages(len(groups), edges)
    if stages is None:
        return None
    return [
        FusedFragment(
            stage,
            tuple(f for f in old.fragments if ("old", f.id) in group),
            tuple(f for f in new.fragments if ("new", f.id) in group),
        )
        for group, stage in zip(groups, stages, strict=True)
    ]


def _edges(side: Literal["old", "new"], layout: Layout) -> Iterator[tuple[FragmentOf, FragmentOf]]:
    """Which fragments of a plan send rows to which."""
    produced_by = {node.id.streams: f.id for f in layout.fragments for node in f.nodes}
    for fragment in layout.fragments:
        for input_ in fragment.inputs:
            if not input_.is_stream:
                yield (side, produced_by[input_.streams]), (side, fragment.id)


def _index(groups: list[set[FragmentOf]], fragment: FragmentOf) -> int:
    return next(i for i, group in enumerate(groups) if fragment in group)


def _stages(count: int, edges: set[tuple[int, int]]) -> list[int] | None:
    """The stage of each group, after those that send to it; None if there is a cycle."""
    stages = [0] * count
    for _ in range(count + 1):
        changed = False
        for sender, receiver in edges:
            if stages[receiver] <= stages[sender]:
                stages[receiver], changed = stages[sender] + 1, True
        if not changed:
            return stages
    return None
