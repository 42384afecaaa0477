"""The budget of background work: how much of a missing state an epoch may compute, to keep batches on time.

The results of an epoch do not depend on how much it computes in the background.
"""

from __future__ import annotations

from midstream.engine.migration_step import MigrationStep

# Without an interval between triggers there is no idle time: epochs may then take longer by this share.
_BACKGROUND_SHARE = 0.25
# A single measurement may be far too low: an epoch's worth costs at least this share of an epoch.
_MIN_COST_SHARE = 0.01


class BackgroundBudget:
    """Learns from each epoch how long an epoch's worth of a state takes to compute."""

    def __init__(self, interval: float | None) -> None:
        """``interval`` is the time between triggers in milliseconds, if there is one."""
        self._interval = interval
        self._foreground_ms: float | None = None
        """What an epoch takes without background work."""
        self._epoch_worth_ms: float | None = None
        """What an epoch's worth of a state takes to compute."""
        self._last = 0
        """How many epochs' worth were computed last."""

    def next(self) -> int:
        """How many epochs' worth to compute now; at least one, or a migration would never end."""
        foreground, each = self._foreground_ms, self._epoch_worth_ms
        if foreground is None or each is None:
            return 1
        available = _BACKGROUND_SHARE * foreground if self._interval is None else self._interval - foreground
        # At most twice as much as last time, to limit the effect of a wrong estimate.
        return max(1, min(int(available / each), 2 * self._last))

    def learn(self, step: MigrationStep | None, total: float) -> None:
        """Update the estimates with an epoch that took ``total`` milliseconds."""
        if step is not None and (step.moves or step.ends):
            return  # its time is not that of a usual epoch
        ranges = [rebuild.epochs for rebuild in step.rebuilds if rebuild.epochs] if step else []
        if not ranges or self._foreground_ms is None:
            self._foreground_ms = total
        if step is not None and ranges:
            # The last range of a rebuild has no lower end: its length is not the amount of work.
            done = sum(r.end - r.first for r in ranges) if step.completes is None else self._last
            self._last = max(done, 1)
            self._epoch_worth_ms = max(
                (total - self._foreground_ms) / self._last, _MIN_COST_SHARE * self._foreground_ms
            )
