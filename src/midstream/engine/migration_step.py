"""One epoch of a migration: what it does besides running a layout."""

from __future__ import annotations

from dataclasses import dataclass

from midstream.engine.epoch_filter import EpochRange, EpochSpan
from midstream.plan.handover import EpochBounds, Handover
from midstream.plan.layout import Layout
from midstream.plan.state_id import StateId
from midstream.state.migration import Migration


@dataclass(frozen=True, slots=True)
class Move:
    """A state of the new plan that starts with the rows of one of the old plan, moved to other partitions."""

    source: StateId
    target: StateId
    epochs: EpochSpan | None = None
    """Which of the rows in this epoch; None for all. A portion stays pending until the state is complete."""


@dataclass(frozen=True, slots=True)
class Rebuild:
    """Rows that a state lacks, to be joined from the states of its node's inputs."""

    state: StateId
    bounds: tuple[EpochBounds, ...]
    """Which rows it lacks."""
    epochs: EpochRange | None = None
    """Which of them in this epoch; None for all. A part stays pending until the state is complete."""


@dataclass(frozen=True, kw_only=True)
class MigrationStep:
    """One epoch of a migration."""

    migration: Migration
    """The migration while the epoch runs."""
    handover: Handover | None
    """How the two plans of the layout divide the rows; None if the new plan runs alone from now on."""
    begins: bool = False
    """Whether this is its first epoch."""
    moved_from: Layout | None = None
    """The layout that has the sources of the moves."""
    moves: tuple[Move, ...] = ()
    rebuilds: tuple[Rebuild, ...] = ()
    completed_state: StateId | None = None
    """The state that is complete after the rebuilds and moves of this epoch."""
    defers_results: bool = False
    """Whether results of the new plan are stored until the old plan produces none any more."""
    releases_results: bool = False
    """Whether results that were deferred are released."""

    @property
    def ends(self) -> bool:
        """Whether the migration ends with this epoch."""
        return self.handover is None
