"""A migration in the manifest: enough to continue it after a crash."""

from __future__ import annotations

import msgspec

from midstream.plan.state_id import StateId


class HandoverEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Rows that a state of the new plan lacks: those whose components all arrived before their bounds."""

    state: StateId
    bounds: dict[str, int]
    """An epoch for each stream of the state."""


HandoverTables = dict[StateId, tuple[HandoverEntry, ...]]
"""For each state that both plans produce: what the old plan still produces of it."""


class RebuildProgress(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A rebuild so far: it has all rows whose component of ``stream`` arrived in this epoch or later."""

    stream: str
    from_epoch: int


class Migration(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A migration in progress."""

    number: int
    old_plan: str
    new_plan: str
    strategy: str
    """The name of its strategy (``migration/strategies.py``)."""
    background: bool
    """Whether states that the new plan lacks are rebuilt while it runs."""
    isolated: bool
    """Whether the new plan started without any rows; else it shares the states that both plans have."""
    start_epoch: int
    """The epoch in which it began."""
    state_ids: dict[StateId, StateId]
    """The ids of the new plan's states, where a migration has started them."""
    borders: tuple[StateId, ...] = ()
    """States of the new plan that the old one has in another location, and whose new rows reach both."""
    moved: tuple[StateId, ...] = ()
    """States of the new plan that started with all rows of one of the old plan."""
    moving: dict[StateId, int] = {}
    """States of the new plan that get the rows of one of the old plan in portions, one state after the other
    and newest rows first. Those that the old plan's state had gained in this epoch or later are moved."""
    handover: HandoverTables
    latest_times: dict[int, dict[str, int | None]]
    """For every epoch that is a bound: the largest event time of each stream before it."""
    rebuilding: dict[StateId, RebuildProgress] = {}
    """The progress of each state that is being rebuilt."""
    completed: tuple[StateId, ...] = ()
    """States that were rebuilt, or moved in portions, and are complete."""
