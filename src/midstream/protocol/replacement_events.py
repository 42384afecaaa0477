"""Events and progress of replacements: another definition takes the place of that of a query."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

from midstream.protocol.event import Event, counted
from midstream.protocol.json_time import show_event_time
from midstream.state.manifest import EndedReplacement, Manifest, Replacement
from midstream.values import show_time


class ReplacementEvent(Event, frozen=True, kw_only=True):
    """Something that happened to a replacement."""

    replacement: int
    """The number of the replacement."""
    strategy: str


class ReplacementStarted(ReplacementEvent, frozen=True, kw_only=True, tag="replacement-started"):
    """The new definition is in the checkpoint, and gets the rows that it needs."""

    template: ClassVar[str] = "replacement {replacement} started, by {strategy}"


class ReplacementLive(ReplacementEvent, frozen=True, kw_only=True, tag="replacement-live"):
    """The new definition takes part; results after a time are its own."""

    until: int | None
    """The hand-over: results up to this time are the old definition's; None if all are the new one's."""

    @property
    def message(self) -> str:
        """The event as a text for people."""
        whose = f"after {show_time(self.until)}" if self.until is not None else "from the first on"
        return f"replacement {self.replacement}: results {whose} are those of the new definition"

    def to_dict(self) -> dict[str, Any]:
        """The JSON form, with the time in ISO 8601."""
        return {**super().to_dict(), "until": show_event_time(self.until)}


class ReplacementEnded(ReplacementEvent, frozen=True, kw_only=True, tag="replacement-ended"):
    """All results of the old definition are out, and its states are gone."""

    epochs: int
    """How many epochs after its start it ended."""

    @property
    def message(self) -> str:
        """The event as a text for people."""
        return f"replacement {self.replacement} ended after {counted(self.epochs, 'epoch')}"


def replacement_events(before: Manifest, after: Manifest) -> Iterator[Event]:
    """The events of an epoch about a replacement."""
    now: Replacement | EndedReplacement | None = after.replacement or after.ended_replacement
    if now is None:
        return
    fields: dict[str, Any] = {
        "batch_id": after.epoch,
        "replacement": now.number,
        "strategy": now.strategy,
    }
    if now.start_epoch == after.epoch:
        yield ReplacementStarted(**fields)
    if now.live_since == after.epoch:
        yield ReplacementLive(until=now.until, **fields)
    if isinstance(now, EndedReplacement) and before.ended_replacement is None:
        yield ReplacementEnded(epochs=after.epoch - now.start_epoch, **fields)


@dataclass(frozen=True, kw_only=True)
class ReplacementProgress:
    """The replacement that is under way, or ended with the epoch."""

    id: int
    strategy: str
    start_epoch: int
    phase: str
    """``catching up``, ``both definitions`` or ``ended``."""
    until: int | None
    """The hand-over time, once the new definition takes part."""

    @classmethod
    def of(cls, manifest: Manifest) -> ReplacementProgress | None:
        """What a manifest says of a replacement."""
        now: Replacement | EndedReplacement | None = manifest.replacement or manifest.ended_replacement
        if now is None:
            return None
        phase = "catching up" if now.live_since is None else "both definitions"
        return cls(
            id=now.number,
            strategy=now.strategy,
            start_epoch=now.start_epoch,
            phase="ended" if manifest.replacement is None else phase,
            until=now.until,
        )

    def to_dict(self) -> dict[str, Any]:
        """The JSON form."""
        return {
            "id": self.id,
            "strategy": self.strategy,
            "startEpoch": self.start_epoch,
            "phase": self.phase,
            "until": show_event_time(self.until),
        }
