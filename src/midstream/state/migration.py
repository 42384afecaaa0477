"""What a manifest says of a migration: enough to go on with it after a crash."""

from __future__ import annotations

from typing import Literal

import msgspec

Strategy = Literal["moving_state", "parallel_track", "hybrid"]


class HandoverEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Rows that a state of the new plan lacks: those whose components all arrived before their bounds."""

    scope: str
    """The state."""
    bounds: dict[str, int]
    """An epoch for each stream of the state."""


class RebuildProgress(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How far a state is: it has all rows whose component of ``stream`` arrived in ``begin`` or later."""

    stream: str
    begin: int


class Migration(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A migration in progress."""

    number: int
    old_plan: str
    plan: str
    """The new plan."""
    strategy: Strategy
    background: bool
    """Whether states that the new plan lacks are computed while it runs."""
    isolated: bool
    """Whether the new plan began without any rows; else it shares what both plans have."""
    start: int
    """The first epoch that both plans ran in."""
    states: dict[str, str]
    """The ids of the new plan's states, where they are not just their streams."""
    tables: dict[str, tuple[HandoverEntry, ...]]
    """The hand-over tables, by the state that a task makes: what the old plan still makes of it."""
    marks: dict[int, dict[str, int | None]]
    """For every epoch that is a bound: the largest event time of each stream before it."""
    computed: dict[str, RebuildProgress] = {}
    """How far states are that are being computed."""
    completed: tuple[str, ...] = ()
    """States that were computed in the background and lack nothing any more."""
