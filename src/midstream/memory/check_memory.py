"""Checking what a manifest says of memory, before anything follows from it."""

from __future__ import annotations

from collections.abc import Iterator

from midstream.errors import CheckpointError
from midstream.plan.fragment_name import FragmentName
from midstream.state.json_with_digest import RESTORE
from midstream.state.manifest import Manifest

_FIGURE_BYTES = 4


def check_memory(manifest: Manifest, groups: int, fragments: frozenset[FragmentName] | None = None) -> None:
    """Refuse cuts and statistics that cannot be those of a query with so many groups.

    ``fragments`` are the names of those that the running plans have, if they are known.
    """
    problem = next(_problems(manifest, groups, fragments), None)
    if problem is not None:
        must = "a manifest must have cuts and statistics that its groups and epochs allow"
        raise CheckpointError(must, got=problem, hint=RESTORE)


def _problems(manifest: Manifest, groups: int, fragments: frozenset[FragmentName] | None) -> Iterator[str]:
    memory = manifest.memory
    for fragment, group, cuts in memory.spilled():
        if not cuts or list(cuts) != sorted(set(cuts)) or not 0 <= cuts[0] <= cuts[-1] <= manifest.epoch:
            yield f"cuts {list(cuts)} of a group of {fragment!r}"
        if not 0 <= group < groups or (fragments is not None and fragment not in fragments):
            yield f"a cut of group {group} of {fragment!r}"
        if not memory.marks.keys() >= set(cuts):
            yield f"no mark of the cuts {list(cuts)}"
    for epoch, mark in memory.marks.items():
        if set(mark.watermarks) != set(manifest.streams):
            yield f"a mark of epoch {epoch} without all streams"
    for state, rebuilt in memory.rebuilt.items():
        if any(not 0 <= group < groups or epoch > manifest.epoch for group, epoch in rebuilt.items()):
            yield f"rebuilt groups of {state}"
    for fragment, figures in memory.statistics.items():
        columns = (figures.rows, figures.results, figures.stored_bytes, figures.intermediate)
        sizes = {len(column) for column in columns if column or column is not figures.intermediate}
        if sizes != {_FIGURE_BYTES * groups}:
            yield f"statistics of {fragment!r}"
