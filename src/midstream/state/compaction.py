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
    both merge at once.

    At most ``max_bytes`` are merged, since merging takes memory for all of its rows at once. Of a run with
    more, the newest slices that have no more merge if they are ``FAN_IN``, and those before stay. So slices
    that stay have more than ``max_bytes`` together with a few of their neighbours: their number follows from
    the bytes of the state, not from its epochs. To merge two or three large ones would halve it at best, and
    they would be written once more for that.
    """
    if len(slices) < FAN_IN:
        return ()
    ordered = sorted(slices, key=lambda s: s.first_epoch)
    first = _first_that_fits(ordered, max_bytes)
    start = len(ordered)
    run_level = 0
    while start > first:
        run_start = start
        while run_start > first and level(ordered[run_start - 1]) <= run_level:
            run_start -= 1
        # The slices chosen so far count as one of this level.
        # Slices of other partitions are of the same epochs.
        if _most_of_one(ordered[run_start:start]) + (start < len(ordered)) < FAN_IN:
            break
        start, run_level = run_start, run_level + 1
    return tuple(ordered[start:])


def _first_that_fits(ordered: Sequence[Slice], max_bytes: int | None) -> int:
    """The number of the first slice that has no more than ``max_bytes`` together with all after it."""
    if max_bytes is None:
        return 0
    first, size = len(ordered), 0
    while first > 0 and (size := size + ordered[first - 1].bytes) <= max_bytes:
        first -= 1
    return first
