"""A stable argsort of integers, several times faster than NumPy's.

Sorting integers is fast, because NumPy vectorizes it; sorting positions by integers is not. So the position
is packed into the low bits of the integer: after sorting, the low bits are the order, and equal integers keep
their order. The order is the same on every machine, which a replayed epoch relies on.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Order = npt.NDArray[np.intp]

# So few integers NumPy itself sorts faster.
_FEW = 1024


def stable_order(values: npt.NDArray[np.uint64] | npt.NDArray[np.int64]) -> Order:
    """The positions that sort ``values`` in ascending order."""
    count = len(values)
    if count < _FEW:
        return np.argsort(values, kind="stable")
    lowest = values.min()
    spread = values.view(np.uint64) - lowest.view(np.uint64)
    bits = (count - 1).bit_length()
    # If both do not fit into 64 bits, the lowest bits of the integer are dropped: they seldom matter.
    excess = max(0, int(spread.max()).bit_length() + bits - 64)
    packed = ((spread >> np.uint64(excess)) << np.uint64(bits)) | np.arange(count, dtype=np.uint64)
    packed.sort()
    order: Order = (packed & np.uint64((1 << bits) - 1)).astype(np.intp)
    if excess:
        ordered = values[order]
        if (ordered[1:] < ordered[:-1]).any():
            return np.argsort(values, kind="stable")
    return order
