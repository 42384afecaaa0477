"""Work counts: a measure of work that does not depend on the machine."""

from __future__ import annotations

import msgspec


class WorkCounts(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The work of nodes."""

    probes: int = 0
    candidates: int = 0
    intermediate_rows: int = 0
    comparisons: int = 0
    """Pairs that a nested loop would have compared."""
    inserted_rows: int = 0
    """Rows inserted into states, once for each key by which they are arranged."""
    sent_rows: int = 0
    """Rows sent to other stages."""
    scanned_rows: int = 0
    """Stored rows that were looked at one by one, because a rebuild starts from some of them."""

    def __add__(self, other: WorkCounts) -> WorkCounts:
        return WorkCounts(
            probes=self.probes + other.probes,
            candidates=self.candidates + other.candidates,
            intermediate_rows=self.intermediate_rows + other.intermediate_rows,
            comparisons=self.comparisons + other.comparisons,
            inserted_rows=self.inserted_rows + other.inserted_rows,
            sent_rows=self.sent_rows + other.sent_rows,
            scanned_rows=self.scanned_rows + other.scanned_rows,
        )
