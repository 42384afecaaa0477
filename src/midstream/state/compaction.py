"""Compaction: which neighbouring slices of a state merge, so that their number stays small.

As in a log-structured merge tree, slices have levels: a slice that was merged from 4**n slices of one epoch
has level n. Four neighbours of one level become one of the next. A state of N epochs then has at
most 3 slices per level, about 3 * log4(N), and each row is written once per level.

A partition that has taken over the groups of others merges their slices as well, of several partitions at a
time. Those of one epoch count as one then: together they are as large as if all had been its own from the
beginning. So taking over costs no merging besides, and after N epochs slices of N epochs are merged.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from midstream.state.slices import Slice

FAN_IN = 4


def level(slice_: Slice) -> int:
    """The level of a slice: the logarithm of its epochs to base ``FAN_IN``, rounded down."""
    result, size = 0, slice_.epochs
    while size >= FAN_IN:
        size //= FAN_IN
        result += 1
    return result


def epochs_of(merged: Sequence[Slice]) -> int:
    """How many slices of one epoch a slice is merged from, not counting those of other partitions besides."""
    epochs: Counter[int] = Counter()
    for slice_ in merged:
        epochs[slice_.owner.partition] += slice_.epochs
    return max(epochs.values())


def _most_of_one(slices: Sequence[Slice]) -> int:
    """The number of slices of the partition that has most of them."""
    return max(Counter(slice_.owner.partition for slice_ in slices).values(), default=0)


def choose_merge(slices: Sequence[Slice], max_bytes: int | None = None) -> tuple[Slice, ...]:
    """The newest neighbours that should become one slice, oldest first; empty if none should.

    Levels fall from old to new, so a full run is at the end; if merging it completes a run of the next level,
    both merge at once. Runs with more than ``max_bytes`` stay as they are: merging takes memory for all of
    their rows at once.
    """
    if len(slices) < FAN_IN:
        return ()
    ordered = sorted(slices, key=lambda s: s.first_epoch)
    start = len(ordered)
    run_level = 0
    while start > 0:
        run_start = start
        while run_start > 0 and level(ordered[run_start - 1]) <= run_level:
            run_start -= 1
        # The slices chosen so far count as one of this level.
        # Slices of other partitions are of the same epochs.
        if _most_of_one(ordered[run_start:start]) + (start < len(ordered)) < FAN_IN:
            break
        if max_bytes is not None and sum(s.bytes for s in ordered[run_start:]) > max_bytes:
            break
        start, run_level = run_start, run_level + 1
    return tuple(ordered[start:])
