"""Events: what an operator should know about an epoch beyond its figures.

Each kind of event is one type: its name in the JSON form, its fields, its severity, and its text for people.
To add a kind, write its type and yield it from ``events_of``; the log, listeners and progress take any event.
What lasts, and is reported again while it does, is a problem: see :mod:`midstream.protocol.problems`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, Literal

import msgspec

from midstream.adapt.amounts import show_amount, show_cost, show_gain
from midstream.adapt.single_partition import describe_unplaced
from midstream.migration.lifecycle import layout_of
from midstream.protocol.event import Event, Severity, pluralized
from midstream.protocol.memory_events import memory_events
from midstream.protocol.place_events import place_events
from midstream.protocol.replacement_events import replacement_events
from midstream.query.query import Query
from midstream.state.manifest import Manifest


class PlanDecision(Event, frozen=True, kw_only=True, tag="decision"):
    """The running plan was compared with the best one. Costs are in units per second."""

    template: ClassVar[str] = (
        "decided to {verdict}: {reason} ({plan!r} costs {cost:,.0f}, {best!r} {best_cost:,.0f} units/s)"
    )
    template_if_best: ClassVar[str] = "decided to {verdict}: {reason} ({plan!r} costs {cost:,.0f} units/s)"

    verdict: Literal["migrate", "stay"]
    reason: str
    plan: str
    cost: float
    best: str
    best_cost: float
    changed: tuple[str, ...]
    """The statistics that had changed since the last decision."""

    @property
    def message(self) -> str:
        """The event as a text for people; a plan that is the best itself is named once."""
        template = self.template_if_best if self.plan == self.best else self.template
        return template.format_map(msgspec.structs.asdict(self))


class MigrationTakenBack(Event, frozen=True, kw_only=True, tag="migration-taken-back"):
    """A migration turned out worse than what was left, so the query goes back to the plan before it."""

    severity: ClassVar[Severity] = "warning"
    template: ClassVar[str] = (
        "migration {migration} is taken back, once: {plan!r} costs {cost:,.0f} units/s, and {best!r}, which "
        "it left, would cost {best_cost:,.0f} now"
    )

    migration: int
    """The number of the migration that is taken back."""
    plan: str
    cost: float
    best: str
    best_cost: float


class SinglePartitionPlan(Event, frozen=True, kw_only=True, tag="single-partition"):
    """A plan begins to run that has all rows of some nodes in one engine partition."""

    severity: ClassVar[Severity] = "warning"
    template: ClassVar[str] = (
        "plan {plan!r} has {nodes} in one engine partition, because no key is common to all inputs: this "
        "does not scale; set singlePartition to 'forbid' to rule out such plans"
    )

    plan: str
    nodes: str
    """The nodes, each as its streams in braces."""


class MigrationEvent(Event, frozen=True, kw_only=True):
    """Something that happened to a migration."""

    migration: int
    """The number of the migration."""
    old_plan: str = msgspec.field(name="from")
    new_plan: str = msgspec.field(name="to")


class MigrationStarted(MigrationEvent, frozen=True, kw_only=True, tag="migration-started"):
    """The new plan has begun to run."""

    template: ClassVar[str] = "migration {migration} started: from {old_plan!r} to {new_plan!r} by {strategy}"

    strategy: str


class StateCompleted(MigrationEvent, frozen=True, kw_only=True, tag="state-completed"):
    """A state of the new plan that was computed in the background has all its rows."""

    template: ClassVar[str] = "migration {migration}: the new plan has all rows of {{{state}}} now"

    state: str


class MigrationEnded(MigrationEvent, frozen=True, kw_only=True, tag="migration-ended"):
    """The new plan makes all results; the old one is gone."""

    template: ClassVar[str] = "migration {migration} ended {duration}: the plan is {new_plan!r}"

    epochs: int
    """How many epochs after its start the migration ended."""

    @property
    def message(self) -> str:
        """The event as a text for people."""
        duration = (
            f"after {pluralized(self.epochs, 'epoch')}" if self.epochs else "with the epoch that began it"
        )
        return self.template.format(duration=duration, **msgspec.structs.asdict(self))


class MigrationJudged(MigrationEvent, frozen=True, kw_only=True, tag="migration-judged"):
    """What a migration has cost and what its plan saves, compared with what was estimated.

    Costs are in units, what is saved in units per second. Estimates are None if there were none.
    """

    template: ClassVar[str] = (
        "migration {migration} turned out {outcome}: it {cost}{expected_cost}, and {new_plan!r} "
        "{gain}{expected_gain}"
    )

    outcome: Literal["worse", "not clearly worse"]
    """Worse only if that is beyond what chance explains."""
    predicted_cost: float | None
    cost: float
    predicted_gain: float | None
    gain: float

    @property
    def message(self) -> str:
        """The event as a text for people."""
        return self.template.format_map(
            {
                **msgspec.structs.asdict(self),
                "cost": show_cost(self.cost),
                "gain": show_gain(self.gain),
                "expected_cost": _expected(self.predicted_cost),
                "expected_gain": _expected(self.predicted_gain),
            }
        )


def _expected(value: float | None) -> str:
    return "" if value is None else f" (estimated: {show_amount(value)})"


def events_of(query: Query, before: Manifest, after: Manifest) -> tuple[Event, ...]:
    """The events of the epoch that led from one manifest to the next."""
    return (
        *_decision_events(before, after),
        *_plan_events(query, before, after),
        *_migration_events(before, after),
        *_outcome_events(before, after),
        *memory_events(before, after),
        *place_events(before, after),
        *replacement_events(before, after),
    )


def _decision_events(before: Manifest, after: Manifest) -> Iterator[Event]:
    decision = after.adaptation.last_decision
    if decision is None or decision == before.adaptation.last_decision:
        return
    yield PlanDecision(
        batch_id=after.epoch,
        verdict=decision.verdict,
        reason=decision.reason,
        plan=decision.plan,
        cost=decision.cost,
        best=decision.best_plan,
        best_cost=decision.best_cost,
        changed=decision.changed,
    )
    if decision.takes_back:
        yield MigrationTakenBack(
            batch_id=after.epoch,
            migration=decision.takes_back,
            plan=decision.plan,
            cost=decision.cost,
            best=decision.best_plan,
            best_cost=decision.best_cost,
        )


def _outcome_events(before: Manifest, after: Manifest) -> Iterator[Event]:
    outcome = after.adaptation.last_outcome
    if outcome is None or outcome == before.adaptation.last_outcome:
        return
    yield MigrationJudged(
        batch_id=after.epoch,
        migration=outcome.migration,
        old_plan=outcome.old_plan,
        new_plan=outcome.new_plan,
        outcome="worse" if outcome.is_worse else "not clearly worse",
        predicted_cost=outcome.predicted_cost,
        cost=outcome.cost,
        predicted_gain=outcome.predicted_gain,
        gain=outcome.gain,
    )


def _plan_events(query: Query, before: Manifest, after: Manifest) -> Iterator[Event]:
    """An event if a plan that is not spread over all partitions begins to run."""
    migration = after.migration or after.ended_migration
    begins = migration is not None and after.migrations > before.migrations
    if after.routings[-1].partitions == 1 or not (begins or before.epoch < 0):
        return
    plan = migration.new_plan if migration and begins else after.plan
    if nodes := describe_unplaced(layout_of(query, plan, {})):
        yield SinglePartitionPlan(batch_id=after.epoch, plan=plan, nodes=nodes)


def _migration_events(before: Manifest, after: Manifest) -> Iterator[Event]:
    migration = after.migration or after.ended_migration
    if migration is None:
        return
    number, old_plan, new_plan = migration.number, migration.old_plan, migration.new_plan
    if after.migrations > before.migrations:
        yield MigrationStarted(
            batch_id=after.epoch,
            migration=number,
            old_plan=old_plan,
            new_plan=new_plan,
            strategy=migration.strategy,
        )
    completed_before = before.migration.completed if before.migration else ()
    for state in migration.completed:
        if state not in completed_before:
            yield StateCompleted(
                batch_id=after.epoch,
                migration=number,
                old_plan=old_plan,
                new_plan=new_plan,
                state=state.label,
            )
    if after.ended_migration is not None:
        yield MigrationEnded(
            batch_id=after.epoch,
            migration=number,
            old_plan=old_plan,
            new_plan=new_plan,
            epochs=after.epoch - migration.start_epoch,
        )
