"""The pace of background work: how much of a missing state an epoch may compute, to keep batches on time.

What is computed does not depend on time, only how much of it at once: so an epoch that is run again may do
another share of it, and its results are the same.
"""

from __future__ import annotations

from midstream.engine.migration_step import MigrationStep

# Without an interval between triggers there is no time left over: epochs then take this much longer.
_SHARE = 0.25
# Nothing that is measured once is believed: a piece is taken to cost at least this much of an epoch.
_LEAST = 0.01


class BackgroundBudget:
    """Learns from each epoch how long an epoch's worth of a state takes to compute."""

    def __init__(self, interval: float | None) -> None:
        self._interval = interval
        self._usual: float | None = None
        """Milliseconds that an epoch takes without background work."""
        self._each: float | None = None
        self._last = 0

    def next(self) -> int:
        """How many epochs' worth to compute now; at least one, or a migration would never end."""
        if self._usual is None or self._each is None:
            return 1
        left = _SHARE * self._usual if self._interval is None else self._interval - self._usual
        # At most twice as much as last time, so that a wrong guess does little harm.
        return max(1, min(int(left / self._each), 2 * self._last))

    def learn(self, step: MigrationStep | None, total: float) -> None:
        """Take note of an epoch that took ``total`` milliseconds."""
        if step is not None and (step.moves or step.ends):
            return  # an epoch like no other
        ranges = [rebuild.epochs for rebuild in step.rebuilds if rebuild.epochs] if step else []
        if not ranges or self._usual is None:
            self._usual = total
        if step is not None and ranges:
            # The last part of a rebuild is open below: its length does not tell how much there was to do.
            done = sum(r.end - r.first for r in ranges) if step.completes is None else self._last
            self._last = max(done, 1)
            self._each = max((total - self._usual) / self._last, _LEAST * self._usual)
