"""How far a replacement has come, as figures and as text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from midstream.errors import OptionError
from midstream.protocol.json_time import show_event_time
from midstream.state.manifest import EndedReplacement, Manifest, Replacement
from midstream.state.replacement import ReplacementRequest

Replaced = Literal["definition", "plan"]
"""What of a query is replaced: all of it, or its plan alone, by a black-box strategy."""


@dataclass(frozen=True, kw_only=True)
class ReplacementProgress:
    """The replacement that is under way, or ended with the epoch."""

    id: int
    replaces: Replaced
    strategy: str
    start_epoch: int
    phase: str
    """``catching up``, ``both definitions`` or ``both plans``, or ``ended``."""
    caught_up: float
    """The share of the stored rows it was to get that the new definition has."""
    until: int | None
    """The hand-over time, once the new definition takes part."""

    @classmethod
    def of(cls, manifest: Manifest) -> ReplacementProgress | None:
        """What a manifest says of a replacement."""
        now: Replacement | EndedReplacement | None = manifest.replacement or manifest.ended_replacement
        if now is None:
            return None
        return cls(
            id=now.number,
            replaces=replaced_part(now),
            strategy=now.strategy,
            start_epoch=now.start_epoch,
            phase=_phase(now),
            caught_up=caught_up_share(manifest),
            until=now.until,
        )

    def to_dict(self) -> dict[str, Any]:
        """The JSON form."""
        return {
            "id": self.id,
            "replaces": self.replaces,
            "strategy": self.strategy,
            "startEpoch": self.start_epoch,
            "phase": self.phase,
            "caughtUp": round(self.caught_up, 3),
            "until": show_event_time(self.until),
        }


def replaced_part(replacement: Replacement | EndedReplacement) -> Replaced:
    """What a replacement replaces."""
    return "plan" if replacement.plan_only else "definition"


def _phase(replacement: Replacement | EndedReplacement) -> str:
    if isinstance(replacement, EndedReplacement):
        return "ended"
    return "catching up" if replacement.live_since is None else f"both {replaced_part(replacement)}s"


def caught_up_share(manifest: Manifest) -> float:
    """The share of the stored rows it is to get that a new box has; 1 once it takes new rows.

    Rows of a slice are taken to be spread evenly over its epochs.
    """
    replacement = manifest.replacement
    if replacement is None or replacement.live_since is not None:
        return 1.0
    stored, replayed = 0, 0.0
    for slice_ in manifest.slices:
        state = slice_.owner.state
        if slice_.owner.kind == "index" and state.is_base and state.streams[0] in replacement.history:
            epochs = slice_.last_epoch + 1 - slice_.first_epoch
            got = min(max(replacement.replayed_before - slice_.first_epoch, 0), epochs)
            stored += slice_.rows
            replayed += slice_.rows * got / epochs
    return replayed / stored if stored else 1.0


def asked_for(request: ReplacementRequest) -> str:
    """The replacement of a request, in a few words."""
    of: Replaced = "definition" if request.definition else "plan"
    return f"of the {of}, by {request.strategy}"


def describe_replacement(manifest: Manifest, request: ReplacementRequest | None) -> str:
    """The replacement that is under way, or else the one that is asked for, in a few words."""
    replacement = manifest.replacement
    if replacement is None:
        assert request is not None, "one of them there must be"  # noqa: S101
        return f"{asked_for(request)}, which waits to begin"
    named = f"number {replacement.number}, of the {replaced_part(replacement)}, by {replacement.strategy}"
    if replacement.live_since is None:
        return f"{named}, which has {100 * caught_up_share(manifest):.0f} % of the stored rows"
    return f"{named}, until all results of the old {replaced_part(replacement)} are out"


def check_none_under_way(manifest: Manifest, request: ReplacementRequest | None) -> None:
    """Refuse a request that must not be made while a replacement waits or runs."""
    if manifest.replacement is not None or request is not None:
        raise OptionError(
            "a replacement that was asked for must have ended",
            got=f"one that has not ended: {describe_replacement(manifest, request)}",
            hint="wait for the event replacement-ended before you ask for another definition or plan, or, "
            "with singlePartition 'forbid', another number of partitions; explain() shows how far it is",
        )
