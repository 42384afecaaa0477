"""Restricting rows by when their components arrived: how two plans share the results between them.

A *bound* gives some streams an epoch each. A result lies within it if its component of each of these
streams arrived before the stream's epoch. A row that lacks some of the streams may still become a result
within; a row that has a component beyond the bound never will, and is dropped as early as it is seen.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from midstream.engine.index_rows import IndexRows, Integers
from midstream.plan.layout import Bounds

EpochRange = tuple[str, int, int]
"""A stream, and epochs: those rows whose component of it arrived from the first on and before the second."""

EpochsOf = Callable[[IndexRows, str], Integers]
"""When the rows' components of a stream arrived."""


def filter_by_epoch(
    rows: IndexRows | None,
    bounds: tuple[Bounds, ...] | None,
    epochs_of: EpochsOf,
    epoch_range: EpochRange | None = None,
) -> IndexRows | None:
    """The rows that may become something within one of the bounds; None if there are none."""
    if rows is None or bounds is None:
        return rows
    epochs: dict[str, Integers] = {}
    within = np.zeros(len(rows), np.bool_)
    for bound in bounds:
        here = np.ones(len(rows), np.bool_)
        for stream, before in bound:
            if stream in rows.times:
                if stream not in epochs:
                    epochs[stream] = epochs_of(rows, stream)
                here &= epochs[stream] < before
        within |= here
    if epoch_range is not None and epoch_range[0] in rows.times:
        arrived = epochs_of(rows, epoch_range[0])
        within &= (arrived >= epoch_range[1]) & (arrived < epoch_range[2])
    if not within.any():
        return None
    return rows if within.all() else rows.take(within)
