"""The budget of background work: how much of a state an epoch may rebuild or move, to keep batches on time.

The results of an epoch do not depend on how much it rebuilds in the background.
"""

from __future__ import annotations

from midstream.engine.migration_step import MigrationStep
from midstream.engine.program import ReplacementStep

# Without an interval between triggers there is no idle time: epochs may then take longer by this share.
_BACKGROUND_SHARE = 0.25
# A single measurement may be far too low: an epoch's worth costs at least this share of an epoch.
_MIN_COST_SHARE = 0.01


class BackgroundBudget:
    """Learns from each epoch how long an epoch's worth of a state takes to rebuild or move.

    An epoch's worth may take longer than the time that one epoch has left. Then that time is saved up until
    it is enough, so that rebuilding goes on and takes no more than its share. If epochs have no time left at
    all, nothing is rebuilt: the old plan produces the results until old rows have expired.
    """

    def __init__(self, interval: float | None) -> None:
        """``interval`` is the time between triggers in milliseconds, if there is one."""
        self._interval = interval
        self._foreground_ms: float | None = None
        """What an epoch takes without background work."""
        self._epoch_worth_ms: float | None = None
        """What an epoch's worth of a state takes to rebuild."""
        self._last = 0
        """How many epochs' worth were rebuilt last."""
        self._replay: int | None = None
        """How many epochs' worth of stored rows a new box gets next, while it catches up."""
        self._saved_ms = 0.0
        """Time that earlier epochs had left, each too little for an epoch's worth."""

    def next(self) -> int:
        """How many epochs' worth to rebuild now."""
        available = self._available()
        if available is None or self._epoch_worth_ms is None:
            return 0 if available == 0 else 1
        if available < self._epoch_worth_ms:
            self._saved_ms += available
            if self._saved_ms < self._epoch_worth_ms:
                return 0
        self._saved_ms = 0.0
        if self._replay is not None:
            return max(1, self._replay)
        # At most twice as much as last time, to limit the effect of a wrong estimate.
        return max(1, min(int(available / self._epoch_worth_ms), 2 * self._last))

    def learn(
        self, step: MigrationStep | None, total: float, replacement: ReplacementStep | None = None
    ) -> None:
        """Update the estimates with an epoch that took ``total`` milliseconds."""
        if replacement is not None:
            self._learn_replay(replacement, total)
            return
        self._replay = None
        rebuilds, moves = (step.rebuilds, step.moves) if step is not None else ((), ())
        if step is not None and (step.ends or any(move.epochs is None for move in moves)):
            return  # its time is not that of a usual epoch
        ranges = [epochs for epochs in (*(r.epochs for r in rebuilds), *(m.epochs for m in moves)) if epochs]
        if not ranges or self._foreground_ms is None:
            self._foreground_ms = total
        if step is not None and ranges:
            # The last range of a state has no lower end: its length is not the amount of work.
            done = sum(r.end - r.first for r in ranges) if step.completed_state is None else self._last
            self._last = max(done, 1)
            self._epoch_worth_ms = max(
                (total - self._foreground_ms) / self._last, _MIN_COST_SHARE * self._foreground_ms
            )

    def _learn_replay(self, step: ReplacementStep, total: float) -> None:
        """The same with an epoch in which a new box has caught up; one of two boxes is no usual epoch.

        Its job takes some time whatever it replays, so portions grow as long as an epoch does not take
        twice as long with one.
        """
        if step.program is None or step.replacement.live_since is not None:
            return
        replay = step.program.replay
        if replay is None or self._foreground_ms is None:
            self._foreground_ms = total
            return
        self._last = max(replay.epochs.end - replay.epochs.first, 1)
        floor = _MIN_COST_SHARE * self._foreground_ms
        extra = total - self._foreground_ms
        self._epoch_worth_ms = max(extra / self._last, floor)
        self._replay = 2 * self._last if extra < self._foreground_ms else self._last

    def _available(self) -> float | None:
        """The time that an epoch has left, in milliseconds; None before the first epoch."""
        if self._foreground_ms is None:
            return None
        if self._interval is None:
            return _BACKGROUND_SHARE * self._foreground_ms
        return max(0.0, self._interval - self._foreground_ms)
