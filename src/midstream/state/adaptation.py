"""Adaptation in the manifest: the last decision about the plan, and what the next one depends on."""

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
    """The estimated cost of the migration itself, not per second but in all."""
    horizon: float = 0.0
    """Seconds of event time over which the saving is weighed against that cost."""
    compared: dict[str, float] = {}
    """Other plans that were considered, and their costs."""
    changed: tuple[str, ...] = ()
    """The statistics that had changed since the previous decision."""


class Adaptation(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What the next decision about the plan depends on, besides the statistics."""

    last_decision: Decision | None = None
    decided_at: float = 0.0
    """When the last decision was made: seconds of event time since the first statistics."""
    baseline: dict[str, float] = {}
    """The statistics at the last decision, with which later ones are compared."""
    cooldown_until: float = 0.0
    """The plan is not changed before this time."""
    patience: float = 1.0
    """Grows with a migration that soon follows another, and shrinks with others."""
    migrated_at: float | None = None
    """When the last decision to change the plan was made."""
    requested_plan: str = ""
    """The plan that a user requested last; it is kept until the statistics change."""

    def decision_for(self, epoch: int) -> Decision | None:
        """The decision that ``epoch`` is to carry out."""
        decision = self.last_decision
        due = decision is not None and decision.verdict == "migrate" and decision.epoch == epoch - 1
        return decision if due else None
