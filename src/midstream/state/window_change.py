"""Changes of the windows, and which rows may meet when the windows have changed since they arrived.

Windows may change when a query is started again. A change holds from an epoch on. Whatever the plan, and
whatever is still stored, two rows of different streams may be in one result if

- they are within every window that has held since the later of them arrived, and
- for every change between their arrivals, the earlier one could still meet rows of the other stream when the
  windows changed, by those that had held until then: it was not further behind the watermark than the window.

So a narrower window holds for all results from then on. A wider one holds between new rows, and between a new
row and the old ones that had not expired for it; two old rows that were too far apart stay apart.

Why the plan cannot matter: joined rows are stored only if they were within the windows when the later one
arrived, and a row that is dropped is too far behind the watermark of every stream that it lacks, so nothing
that fulfils both conditions was left out or dropped.
"""

from __future__ import annotations

import msgspec

from midstream.query.window import Windows
from midstream.values import Micros


class WindowChange(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One change of the windows; kept for as long as rows from before it may be in a result."""

    epoch: int
    """The first epoch with other windows."""
    within: tuple[tuple[str, str, int], ...]
    """The windows until then."""
    watermarks: dict[str, int | None]
    """The watermarks of the streams when it began."""
    latest: dict[str, int | None]
    """The largest event time of each stream until then."""

    @property
    def windows(self) -> Windows:
        """The windows until then."""
        return Windows(tuple((a, b, Micros(width)) for a, b, width in self.within))
