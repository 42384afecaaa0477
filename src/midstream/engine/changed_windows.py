"""Which combined rows may be in a result after the windows have changed.

The rule is that of :mod:`midstream.state.window_change`. It is checked for every pair of components, also of
rows that were joined and stored before a change.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations

import numpy as np
import numpy.typing as npt

from midstream.engine.hashing import Hashes
from midstream.engine.references import Integers
from midstream.state.expiry import Expiry
from midstream.state.window_change import WindowChange

Mask = npt.NDArray[np.bool_]


def may_be_combined(expiry: Expiry, times: Mapping[str, Integers], epochs: Mapping[str, Integers]) -> Mask:
    """Which rows, given the times of their components and the epochs in which these arrived."""
    combined = np.ones(len(next(iter(times.values()))), np.bool_)
    for a, b in combinations(times, 2):
        width = expiry.windows.width(a, b)
        if width is not None:
            combined &= distance(times[a], times[b]) <= np.uint64(width)
        for change in expiry.changes:
            combined &= _may_meet(change, a, b, times, epochs)
    return combined


def _may_meet(
    change: WindowChange, a: str, b: str, times: Mapping[str, Integers], epochs: Mapping[str, Integers]
) -> Mask:
    """Whether components of two streams could meet by the windows that held until a change."""
    width = change.windows.width(a, b)
    is_old = {name: epochs[name] < change.epoch for name in (a, b)}
    if width is None:
        return np.ones(len(times[a]), np.bool_)
    may_meet = ~(is_old[a] & is_old[b]) | (distance(times[a], times[b]) <= np.uint64(width))
    for name, other in ((a, b), (b, a)):
        watermark = change.watermarks[other]
        if watermark is not None:
            may_meet &= ~is_old[name] | is_old[other] | (times[name] >= watermark - width)
    return may_meet


def distance(a: Integers, b: Integers) -> Hashes:
    """The distance of times; unsigned, because that of the smallest and the largest needs all 64 bits."""
    return np.maximum(a, b).view(np.uint64) - np.minimum(a, b).view(np.uint64)
