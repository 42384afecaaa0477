"""What a manifest says of decisions: the last one, why it was made, and what the next one depends on."""

from __future__ import annotations

from typing import Literal

import msgspec


class Decision(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A comparison of the running plan with the best one, and its outcome. Costs are per second."""

    epoch: int
    verdict: Literal["migrate", "stay"]
    reason: str
    plan: str
    cost: float
    best_plan: str
    best_cost: float
    strategy: str = "hybrid"
    background: bool = True
    isolated: bool = False
    migration_cost: float = 0.0
    """What the migration itself would cost, in the unit of costs."""
    horizon: float = 0.0
    """Seconds over which the saving must pay for it."""
    compared: dict[str, float] = {}
    """Other plans that were considered, and what they cost."""
    changed: tuple[str, ...] = ()
    """What had changed since the decision before."""


class Adaptation(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What the next decision about the plan depends on, besides the statistics."""

    last_decision: Decision | None = None
    decided_at: float = 0.0
    """When the last decision was made: seconds of event time since the first statistics."""
    baseline: dict[str, float] = {}
    """The statistics of the last decision, which changes are measured against."""
    cooldown_until: float = 0.0
    """Until then the plan is not changed."""
    patience: float = 1.0
    """Grows with every migration that soon follows another, and shrinks again."""
    migrated_at: float | None = None
    """When it was last decided to change the plan."""
    requested_plan: str = ""
    """The plan that a user requested last; it stays until something changes."""

    def decision_for(self, epoch: int) -> Decision | None:
        """The decision that ``epoch`` is to carry out."""
        decision = self.last_decision
        due = decision is not None and decision.verdict == "migrate" and decision.epoch == epoch - 1
        return decision if due else None
