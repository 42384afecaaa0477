"""What an epoch does about a migration, beyond running a layout."""

from __future__ import annotations

from dataclasses import dataclass

from midstream.engine.epoch_filter import EpochRange
from midstream.plan.handover import EpochBounds, Handover
from midstream.plan.layout import Layout
from midstream.plan.state_id import StateId
from midstream.state.migration import Migration


@dataclass(frozen=True, slots=True)
class Move:
    """A state that begins with the rows of another, which may lie in other partitions."""

    source: StateId
    target: StateId


@dataclass(frozen=True, slots=True)
class Rebuild:
    """Rows that a state lacks, to be computed from the states of its node's inputs."""

    state: StateId
    bounds: tuple[EpochBounds, ...]
    """Which rows it lacks."""
    epochs: EpochRange | None = None
    """Which of them now; None for all at once. Parts of a rebuild stay pending until all are there."""


@dataclass(frozen=True, kw_only=True)
class MigrationStep:
    """One epoch of a migration."""

    migration: Migration
    """The migration as it is while the epoch runs."""
    handover: Handover | None
    """How the plans of the program's layout share the rows; None if the new plan runs alone from now on."""
    begins: bool = False
    """Whether this is its first epoch."""
    moved_from: Layout | None = None
    """The layout in which the sources of moves are."""
    moves: tuple[Move, ...] = ()
    rebuilds: tuple[Rebuild, ...] = ()
    completes: StateId | None = None
    """The state that lacks nothing any more once the rebuilds are done."""
    defers_results: bool = False
    """Whether results of the new plan wait for the end of the migration."""
    releases_results: bool = False
    """Whether results that have waited come out now."""

    @property
    def ends(self) -> bool:
        """Whether the migration is over with this epoch."""
        return self.handover is None
