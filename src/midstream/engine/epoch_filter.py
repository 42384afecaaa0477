"""Filtering rows by the epochs in which their components arrived: how two plans divide the results.

A *bound* gives some streams an epoch each. A result lies within it if its component of each of these
streams arrived before the stream's epoch. A row that lacks some of the streams may still become part of such
a result; a row with a component beyond the bound never will, and can be dropped.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from midstream.engine.index_rows import IndexRows
from midstream.engine.references import Integers, epoch_of
from midstream.plan.handover import EpochBounds
from midstream.state.slices import Slice


class EpochRange(NamedTuple):
    """Rows whose component of a stream arrived in the epochs from ``first`` to before ``end``."""

    stream: str
    first: int
    end: int


class EpochSpan(NamedTuple):
    """Rows that a state gained in the epochs from ``first`` to before ``end``."""

    first: int
    end: int


EpochsOf = Callable[[IndexRows, str], Integers]
"""The epochs in which the rows' components of a stream arrived."""


def filter_by_epoch(
    rows: IndexRows | None,
    bounds: tuple[EpochBounds, ...] | None,
    epochs_of: EpochsOf,
    only: EpochRange | None = None,
) -> IndexRows | None:
    """The rows, only those of a range if given, that may become results within a bound; None if none may."""
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


def gained_between(rows: IndexRows, span: EpochSpan) -> npt.NDArray[np.bool_]:
    """Which rows a state gained in the epochs of a span: in that of a combined row's newest part."""
    gained = np.maximum.reduce([epoch_of(references) for references in rows.references.values()])
    within: npt.NDArray[np.bool_] = (gained >= span.first) & (gained < span.end)
    return within


def may_have_gained(slice_: Slice, span: EpochSpan) -> bool:
    """Whether a slice may have rows that its state gained in the epochs of a span (see below)."""
    outside = slice_.last_epoch < span.first or slice_.first_epoch >= span.end
    return not (slice_.owner.state.is_base and outside)


def may_have_rows(
    slice_: Slice, bounds: tuple[EpochBounds, ...] | None, only: EpochRange | None = None
) -> bool:
    """Whether a slice may have rows within a bound, and of a range if given, by what the manifest says of it.

    This is known of base states. Combined rows may have components that arrived long before the epochs of
    their slice, if a migration has rebuilt or moved their state.
    """
    if bounds is None or not slice_.owner.state.is_base:
        return True
    (stream,) = slice_.owner.state.streams
    first, last = slice_.first_epoch, slice_.last_epoch
    if only is not None and only.stream == stream and (last < only.first or first >= only.end):
        return False
    return any(first < dict(bound).get(stream, first + 1) for bound in bounds)
