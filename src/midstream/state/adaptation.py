"""What a manifest says of decisions: the last one, why it was made, and what the next one depends on."""

from __future__ import annotations

from typing import Literal

import msgspec

from midstream.state.migration import Strategy


class Decision(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A comparison of the running plan with the best one, and what came of it. Costs are per second."""

    epoch: int
    verdict: Literal["migrate", "stay"]
    reason: str
    plan: str
    cost: float
    best: str
    best_cost: float
    strategy: Strategy = "hybrid"
    background: bool = True
    isolated: bool = False
    price: float = 0.0
    """What the migration itself would cost, in the unit of costs."""
    horizon: float = 0.0
    """Seconds over which the gain must pay for it."""
    compared: dict[str, float] = {}
    """Other plans that were looked at, and what they cost."""
    changed: tuple[str, ...] = ()
    """What had changed since the decision before."""


class Adaptation(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How far a query is with adapting."""

    last: Decision | None = None
    at: float = 0.0
    """When the last decision was made: seconds of event time since the first statistics."""
    baseline: dict[str, float] = {}
    """The statistics of the last decision, which changes are measured against."""
    cooldown_until: float = 0.0
    """Until then nothing is changed."""
    patience: float = 1.0
    """Grows with every migration that soon follows another, and shrinks again."""
    migrated: float | None = None
    """When it was last decided to change the plan."""
    asked: str = ""
    """The plan that a user asked for last; it stands until something changes."""

    def wants(self, epoch: int) -> Decision | None:
        """The decision that ``epoch`` is to carry out."""
        decided = self.last is not None and self.last.verdict == "migrate" and self.last.epoch == epoch - 1
        return self.last if decided else None
