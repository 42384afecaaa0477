"""Running fragments of two plans together: those that share joined rows must, those alike may.

Both plans' shares of a state come together in one task only if the fragments that keep it run as one, in one
stage. Fragments wait for those that send them rows; so they can be put together only if nobody ends up
waiting for himself.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from midstream.plan.layout import Fragment, Layout, streams_of

Pair = tuple[int, int]
"""A fragment of the old plan and one of the new, by their numbers."""


@dataclass(frozen=True)
class FusedFragment:
    """Fragments that run as one, and in which stage."""

    stage: int
    old: tuple[Fragment, ...]
    new: tuple[Fragment, ...]


def can_fuse(old: Layout, new: Layout, pairs: Iterable[Pair]) -> bool:
    """Whether all these pairs of fragments can run as one."""
    return _fuse(old, new, pairs) is not None


def fused_fragments(old: Layout, new: Layout, needed: Iterable[Pair]) -> list[FusedFragment]:
    """The fragments of both plans, those of the pairs together, and others of the same key if they can be."""
    chosen = list(dict.fromkeys(needed))
    for mine in new.fragments:
        for theirs in old.fragments:
            pair = theirs.id, mine.id
            if mine.key == theirs.key and pair not in chosen and can_fuse(old, new, [*chosen, pair]):
                chosen.append(pair)
    found = _fuse(old, new, chosen)
    return found if found is not None else []


def _fuse(old: Layout, new: Layout, pairs: Iterable[Pair]) -> list[FusedFragment] | None:
    groups = [{("old", f.id)} for f in old.fragments] + [{("new", f.id)} for f in new.fragments]
    for theirs, mine in pairs:
        first = next(g for g in groups if ("old", theirs) in g)
        second = next(g for g in groups if ("new", mine) in g)
        if first is not second:
            groups.remove(second)
            first |= second
    edges = {(_index(groups, a), _index(groups, b)) for a, b in (*_edges("old", old), *_edges("new", new))}
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


def _edges(side: str, layout: Layout) -> Iterator[tuple[tuple[str, int], tuple[str, int]]]:
    """Who sends rows to whom in one plan."""
    made_by = {streams_of(node.id): f.id for f in layout.fragments for node in f.nodes}
    for fragment in layout.fragments:
        for one in fragment.inputs:
            if not one.is_stream:
                yield (side, made_by[one.streams]), (side, fragment.id)


def _index(groups: list[set[tuple[str, int]]], fragment: tuple[str, int]) -> int:
    return next(i for i, group in enumerate(groups) if fragment in group)


def _stages(count: int, edges: set[tuple[int, int]]) -> list[int] | None:
    """The stage of each group: after all that send to it; None if some wait for each other."""
    stages = [0] * count
    for _ in range(count + 1):
        moved = False
        for sender, taker in edges:
            if stages[taker] <= stages[sender]:
                stages[taker], moved = stages[sender] + 1, True
        if not moved:
            return stages
    return None
