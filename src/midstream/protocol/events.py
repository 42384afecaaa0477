"""Events: what an operator should know about an epoch beyond its figures.

Each kind of event is one type: its name in the JSON form, its fields, its severity, and its text for people.
To add a kind, write its type and yield it from ``events_of``; the log, listeners and progress take any event.
What lasts, and is told of again while it does, is a problem: see :mod:`midstream.protocol.problems`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar, Literal

import msgspec

from midstream.adapt.single_partition import describe_unplaced
from midstream.plan.build_layout import build_layout
from midstream.plan.tree import parse_plan
from midstream.query.query import Query
from midstream.state.manifest import Manifest
from midstream.state.memory import MemoryAction

Severity = Literal["info", "warning"]
"""A ``warning`` is for events that may call for action, or end one that did."""


class Event(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="event", rename="camel"):
    """Something that happened in an epoch."""

    severity: ClassVar[Severity] = "info"
    template: ClassVar[str]
    """The text for people, with the names of fields in braces."""

    batch_id: int
    """The number of the epoch."""

    @property
    def type(self) -> str:
        """The name of the kind of event in the JSON form, such as ``stream-idle``."""
        return str(self.__struct_config__.tag)

    @property
    def message(self) -> str:
        """The event as a text for people; the number of the epoch is not in it."""
        return self.template.format_map(msgspec.structs.asdict(self))

    def to_dict(self) -> dict[str, Any]:
        """The JSON form: type, fields, severity and message; keys are in camel case."""
        fields: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(self))
        return {**fields, "severity": self.severity, "message": self.message}


def counted(number: int, noun: str) -> str:
    """A number of things, such as ``1 row`` and ``2 rows``."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


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


class MemoryEvent(Event, frozen=True, kw_only=True):
    """Something that was done about memory."""

    fragment: str
    """The key classes that place it, and its inputs."""
    groups: int
    bytes: int
    reason: str

    @property
    def message(self) -> str:
        """The event as a text for people."""
        return self.template.format(counted=counted(self.groups, "group"), **msgspec.structs.asdict(self))


class StateSpilled(MemoryEvent, frozen=True, kw_only=True, tag="state-spilled"):
    """Groups are not probed any more; what they owe is made later."""

    template: ClassVar[str] = "spilled {counted} of fragment {fragment!r}, {bytes:,} bytes: {reason}"


class StateCleanedUp(MemoryEvent, frozen=True, kw_only=True, tag="state-cleaned-up"):
    """What groups owed was made; they are still not probed."""

    template: ClassVar[str] = (
        "made what {counted} of fragment {fragment!r} owed, from {bytes:,} bytes: {reason}"
    )


class StateBroughtBack(MemoryEvent, frozen=True, kw_only=True, tag="state-brought-back"):
    """What groups owed was made; they are probed again."""

    template: ClassVar[str] = (
        "made what {counted} of fragment {fragment!r} owed, and brought {bytes:,} bytes back: {reason}"
    )


_MEMORY_EVENTS: dict[MemoryAction, type[MemoryEvent]] = {
    "spilled": StateSpilled,
    "cleaned up": StateCleanedUp,
    "brought back": StateBroughtBack,
}


class StateRelocated(Event, frozen=True, kw_only=True, tag="state-relocated"):
    """Groups have another partition from this epoch on: the steps of the papers' protocol in one commit."""

    template: ClassVar[str] = (
        "relocated {counted} of key {key}, {bytes:,} bytes, from partition {sender} to {receiver}, which had "
        "{ratio:.0%} of its active state"
    )

    key: str
    """The key classes that place them."""
    groups: int
    bytes: int
    sender: int
    receiver: int
    ratio: float

    @property
    def message(self) -> str:
        """The event as a text for people."""
        return self.template.format(counted=counted(self.groups, "group"), **msgspec.structs.asdict(self))


class HotKeyEvent(Event, frozen=True, kw_only=True):
    """Something that was done about a hot key."""

    key: str
    """The key class."""
    hash: int
    partitions: int
    stream: str
    share: float
    reason: str


class HotKeySpread(HotKeyEvent, frozen=True, kw_only=True, tag="hot-key-spread"):
    """Partitions share a key from now on."""

    template: ClassVar[str] = (
        "the key of class {key} with hash {hash}, which makes {share:.0%} of the work, is shared by "
        "{partitions} partitions, and rows of {stream} are dealt out among them: {reason}"
    )


class HotKeyGathered(HotKeyEvent, frozen=True, kw_only=True, tag="hot-key-gathered"):
    """One partition has a key again that several had shared."""

    template: ClassVar[str] = "one partition has the key of class {key} with hash {hash} again: {reason}"


_HOT_KEY_EVENTS: dict[str, type[HotKeyEvent]] = {"spread": HotKeySpread, "gathered": HotKeyGathered}


class MigrationWaits(Event, frozen=True, kw_only=True, tag="migration-waits"):
    """A change of plan that was requested waits until what it changes is cleaned up."""

    template: ClassVar[str] = (
        "the change to plan {plan!r} waits: groups that it changes are spilled, and come back first"
    )

    plan: str


class Rescaled(Event, frozen=True, kw_only=True, tag="rescaled"):
    """The number of engine partitions has changed."""

    template: ClassVar[str] = "the state is in {partitions} engine partitions now, instead of {before}"

    before: int
    partitions: int


class RescaleWaits(Event, frozen=True, kw_only=True, tag="rescale-waits"):
    """Another number of engine partitions that was requested waits."""

    template: ClassVar[str] = (
        "the change to {partitions} engine partitions waits until rows have expired that a migration of an "
        "earlier version has moved"
    )

    partitions: int


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
        duration = f"after {counted(self.epochs, 'epoch')}" if self.epochs else "with the epoch that began it"
        return self.template.format(duration=duration, **msgspec.structs.asdict(self))


class MigrationJudged(MigrationEvent, frozen=True, kw_only=True, tag="migration-judged"):
    """What a migration has cost and what its plan saves, compared with what was estimated.

    Costs are in units, what is saved in units per second. Estimates are None if there were none.
    """

    template: ClassVar[str] = (
        "migration {migration} turned out {verdict}: it cost {cost:,.0f} units{expected_cost}, and "
        "{new_plan!r} saves {gain:,.0f} units/s{expected_gain}"
    )

    verdict: Literal["worse", "as good or better"]
    predicted_cost: float | None
    cost: float
    predicted_gain: float | None
    gain: float

    @property
    def message(self) -> str:
        """The event as a text for people."""
        return self.template.format(
            expected_cost=_expected(self.predicted_cost),
            expected_gain=_expected(self.predicted_gain),
            **msgspec.structs.asdict(self),
        )


def _expected(value: float | None) -> str:
    return "" if value is None else f" (estimated: {value:,.0f})"


def events_of(query: Query, before: Manifest, after: Manifest) -> tuple[Event, ...]:
    """The events of the epoch that led from one manifest to the next."""
    return (
        *_decision_events(before, after),
        *_plan_events(query, before, after),
        *_migration_events(before, after),
        *_outcome_events(before, after),
        *_memory_events(before, after),
        *_rescale_events(before, after),
        *_balance_events(after),
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
        verdict="worse" if outcome.is_worse else "as good or better",
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
    plan = parse_plan(migration.new_plan if migration and begins else after.plan, query.names)
    if nodes := describe_unplaced(build_layout(query, plan)):
        yield SinglePartitionPlan(batch_id=after.epoch, plan=str(plan), nodes=nodes)


def _memory_events(before: Manifest, after: Manifest) -> Iterator[Event]:
    for change in after.memory.changes:
        yield _MEMORY_EVENTS[change.action](
            batch_id=after.epoch,
            fragment=change.fragment,
            groups=change.groups,
            bytes=change.bytes,
            reason=change.reason,
        )
    waiting = after.memory.waiting_plan
    if waiting and waiting != before.memory.waiting_plan:
        yield MigrationWaits(batch_id=after.epoch, plan=waiting)


def _rescale_events(before: Manifest, after: Manifest) -> Iterator[Event]:
    former, partitions = before.routings[-1].partitions, after.routings[-1].partitions
    if partitions != former:
        yield Rescaled(batch_id=after.epoch, before=former, partitions=partitions)
    waiting = after.waiting_partitions
    if waiting and waiting != before.waiting_partitions:
        yield RescaleWaits(batch_id=after.epoch, partitions=waiting)


def _balance_events(after: Manifest) -> Iterator[Event]:
    for moved in after.balance.relocations:
        yield StateRelocated(batch_id=after.epoch, **msgspec.structs.asdict(moved))
    for change in after.balance.hot_keys:
        fields = msgspec.structs.asdict(change)
        yield _HOT_KEY_EVENTS[fields.pop("action")](batch_id=after.epoch, **fields)


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
