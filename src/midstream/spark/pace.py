"""The pace of background work: how much of a missing state an epoch may compute, to keep batches on time.

What is computed does not depend on time, only how much of it at once: so an epoch that is run again may do
another share of it, and its results are the same.
"""

from __future__ import annotations

from midstream.state.migration import Migration

# Without an interval between triggers there is no time left over: epochs then take this much longer.
_SHARE = 0.25


class Pace:
    """Learns from each epoch how long an epoch's worth of a state takes to compute."""

    def __init__(self, interval: float | None) -> None:
        self._interval = interval
        self._usual: float | None = None
        self._each: float | None = None

    def next(self, migration: Migration | None) -> int:
        """How many epochs' worth to compute now; at least one, or a migration would never end."""
        if migration is None or self._usual is None or self._each is None:
            return 1
        left = _SHARE * self._usual if self._interval is None else self._interval - self._usual
        return max(1, int(left / max(self._each, 0.1)))

    def learn(self, before: Migration | None, after: Migration | None, total: float) -> None:
        """Take note of an epoch that took ``total`` milliseconds."""
        done = _computed(before, after)
        if not done:
            self._usual = total
        elif self._usual is not None:
            self._each = max(total - self._usual, 0.0) / done


def _computed(before: Migration | None, after: Migration | None) -> int:
    """How many epochs' worth of a state an epoch has computed, as far as it shows."""
    if before is None or after is None:
        return 0
    return sum(before.computed.get(state, begin) - begin for state, begin in after.computed.items())
