"""Filtering rows by when their components arrived: how two plans share the results between them.

A *bound* gives some streams an epoch each. A result lies within it if its component of each of these
streams arrived before the stream's epoch. A row that lacks some of the streams may still become a result
within; a row that has a component beyond the bound never will, and is dropped as early as it is seen.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from midstream.engine.index_rows import IndexRows
from midstream.engine.references import Integers
from midstream.plan.handover import EpochBounds


class EpochRange(NamedTuple):
    """Rows whose component of a stream arrived in some epochs."""

    stream: str
    first: int
    end: int
    """The first epoch that is not among them."""


EpochsOf = Callable[[IndexRows, str], Integers]
"""When the rows' components of a stream arrived."""


def filter_by_epoch(
    rows: IndexRows | None,
    bounds: tuple[EpochBounds, ...] | None,
    epochs_of: EpochsOf,
    only: EpochRange | None = None,
) -> IndexRows | None:
    """The rows that may become something within one of the bounds; None if there are none."""
    if rows is None or bounds is None:
        return rows
    epochs: dict[str, Integers] = {}
    within = np.zeros(len(rows), np.bool_)
    for bound in bounds:
        within_bound = np.ones(len(rows), np.bool_)
        for stream, before in bound:
            if stream in rows.times:
                if stream not in epochs:
                    epochs[stream] = epochs_of(rows, stream)
                within_bound &= epochs[stream] < before
        within |= within_bound
    if only is not None and only.stream in rows.times:
        arrived = epochs_of(rows, only.stream)
        within &= (arrived >= only.first) & (arrived < only.end)
    if not within.any():
        return None
    return rows if within.all() else rows.take(within)
