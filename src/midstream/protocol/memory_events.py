"""Events about memory: what was spilled and cleaned up, and plans that wait for it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import msgspec

from midstream.protocol.event import Event, pluralized
from midstream.state.manifest import Manifest
from midstream.state.memory import MemoryAction


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
        return self.template.format(counted=pluralized(self.groups, "group"), **msgspec.structs.asdict(self))


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


class MigrationWaits(Event, frozen=True, kw_only=True, tag="migration-waits"):
    """A change of plan that was requested waits until what it changes is cleaned up."""

    template: ClassVar[str] = (
        "the change to plan {plan!r} waits: groups that it changes are spilled, and come back first"
    )

    plan: str


def memory_events(before: Manifest, after: Manifest) -> Iterator[Event]:
    """What was done about memory in the epoch that led from one manifest to the next."""
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
