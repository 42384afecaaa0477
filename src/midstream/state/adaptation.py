"""Adaptation in the manifest: the last decision about the plan, and what the next one depends on."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from midstream.state.costs import Cost


class Decision(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A comparison of the running plan with the best one, and its outcome. Costs are per second."""

    epoch: int
    """The epoch from whose statistics it follows; a later one carries it out."""
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
    takes_back: int = 0
    """The number of the migration that turned out worse than what was left, which this one takes back."""


class Prediction(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What was estimated when a migration began; plans cost so much per second, without stored bytes."""

    old_cost: float
    new_cost: float
    migration_cost: float | None


class Trial(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A migration whose outcome is not known yet."""

    migration: int
    """Its number."""
    old_plan: str
    new_plan: str
    is_final: bool
    """It is not taken back: a user has asked for it, or it takes one back itself."""
    predicted: Prediction | None = None
    bias: float | None = None
    """How many times the work that samples promised the old plan did; None if that was not known."""
    spent: Cost = Cost()
    """The work of its epochs."""
    seconds: float = 0.0
    """Their event time."""


class MigrationOutcome(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What a migration has cost in all, and what its plan saves per second."""

    epoch: int
    """The epoch with which it was known."""
    migration: int
    old_plan: str
    new_plan: str
    is_final: bool
    predicted_cost: float | None
    cost: float
    predicted_gain: float | None
    old_cost: float
    """What the old plan would cost now."""
    new_cost: float
    """What the new plan was seen to cost."""
    is_worse: bool
    """Whether the new plan costs more than the old one would, beyond doubt."""

    @property
    def gain(self) -> float:
        """What the new plan saves."""
        return self.old_cost - self.new_cost


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
    restored_plan: str = ""
    """The plan that a migration was taken back to; it is kept until the statistics change."""
    trial: Trial | None = None
    """The last migration, until its outcome is known."""
    last_outcome: MigrationOutcome | None = None
    """That of the last migration of which it is known."""
    sites: dict[str, Any] | None = None
    """What sites know that find plans by messages, and the messages that are still to be handed over
    (``sites/distributed.py``)."""


class Verdict(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What was decided from the statistics of an epoch: a later epoch carries it out and commits it."""

    epoch: int
    """The epoch whose statistics it follows from."""
    adaptation: Adaptation
    """What it is committed as."""

    @property
    def migration(self) -> Decision | None:
        """The decision to change the plan; None if the plan stays."""
        decision = self.adaptation.last_decision
        is_new = decision is not None and decision.epoch == self.epoch
        return decision if decision is not None and is_new and decision.verdict == "migrate" else None
