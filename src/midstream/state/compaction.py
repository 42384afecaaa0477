"""Compaction: which neighbouring slices of a state merge, so that there are never many.

As in a log-structured merge tree, slices have levels: a slice that was merged from 4**n slices of one epoch
has level n. Four neighbours of one level become one of the next. A state of N epochs then has at
most 3 slices per level, about 3 * log4(N), and each row is written once per level.
"""

from __future__ import annotations

from collections.abc import Sequence

from midstream.state.slices import Slice

FAN_IN = 4


def level(slice_: Slice) -> int:
    """The level of a slice: how many times FAN_IN goes into its epochs."""
    found, size = 0, slice_.epochs
    while size >= FAN_IN:
        size //= FAN_IN
        found += 1
    return found


def choose_merge(slices: Sequence[Slice]) -> tuple[Slice, ...]:
    """The newest neighbours that should become one slice, oldest first; empty if none should.

    Levels fall from old to new, so a full run is at the end; if merging it completes a run of the level
    above, both merge in one go.
    """
    if len(slices) < FAN_IN:
        return ()
    ordered = sorted(slices, key=lambda s: s.first_epoch)
    start = len(ordered)
    wanted = 0
    while start > 0:
        run = start
        while run > 0 and level(ordered[run - 1]) <= wanted:
            run -= 1
        # What is already chosen counts as one slice of this level.
        if start - run + (start < len(ordered)) < FAN_IN:
            break
        start, wanted = run, wanted + 1
    return tuple(ordered[start:])
