"""Events of replacements: another definition takes the place of that of a query."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

from midstream.protocol.event import Event, Severity, pluralized
from midstream.protocol.json_time import show_event_time
from midstream.protocol.replacement_progress import Replaced, replaced_part
from midstream.state.manifest import EndedReplacement, Manifest, Replacement
from midstream.values import show_time


class ReplacementEvent(Event, frozen=True, kw_only=True):
    """Something that happened to a replacement."""

    replacement: int
    """The number of the replacement."""
    replaces: Replaced
    """Whether it replaces the definition, or the plan alone."""
    strategy: str


class ReplacementStarted(ReplacementEvent, frozen=True, kw_only=True, tag="replacement-started"):
    """The new definition is in the checkpoint, and gets the rows that it needs."""

    template: ClassVar[str] = "replacement {replacement} of the {replaces} started, by {strategy}"


class ReplacementLive(ReplacementEvent, frozen=True, kw_only=True, tag="replacement-live"):
    """The new definition takes part; results after a time are its own."""

    until: int | None
    """The hand-over: results up to this time are the old definition's; None if all are the new one's."""

    @property
    def message(self) -> str:
        """The event as a text for people."""
        whose = f"after {show_time(self.until)}" if self.until is not None else "from the first on"
        return f"replacement {self.replacement}: results {whose} are those of the new {self.replaces}"

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
        return (
            f"replacement {self.replacement} of the {self.replaces} ended after "
            f"{pluralized(self.epochs, 'epoch')}"
        )


class ReplacementDropped(Event, frozen=True, kw_only=True, tag="replacement-dropped"):
    """A request for another definition was dropped, as its results could not go where they were to go."""

    severity: ClassVar[Severity] = "warning"
    template: ClassVar[str] = (
        "request {request} for another definition is dropped: since it was made, the query was started with "
        "other outputs than those that the new definition was to go on with; ask for it again, if it is "
        "still wanted"
    )

    request: int
    """The number of the request."""


def replacement_events(before: Manifest, after: Manifest) -> Iterator[Event]:
    """The events of an epoch about a replacement."""
    if after.applied_replacements > before.applied_replacements and after.replacements == before.replacements:
        yield ReplacementDropped(batch_id=after.epoch, request=after.applied_replacements)
    now: Replacement | EndedReplacement | None = after.replacement or after.ended_replacement
    if now is None:
        return
    fields: dict[str, Any] = {
        "batch_id": after.epoch,
        "replacement": now.number,
        "replaces": replaced_part(now),
        "strategy": now.strategy,
    }
    if now.start_epoch == after.epoch:
        yield ReplacementStarted(**fields)
    if now.live_since == after.epoch:
        yield ReplacementLive(until=now.until, **fields)
    if isinstance(now, EndedReplacement) and before.ended_replacement is None:
        yield ReplacementEnded(epochs=after.epoch - now.start_epoch, **fields)
