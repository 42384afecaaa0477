"""The outcome of one seed of the simulator: counts, for people and for tests."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from midstream.runtime.crash_points import POINTS


@dataclass
class SimulationOutcome:
    """What happened in a run of the simulator."""

    seed: int
    workload: str
    lives: int = 0
    results: int = 0
    late: int = 0
    replays: int = 0
    refused: int = 0
    """How often damage was refused."""
    fenced: int = 0
    """How often a driver that was fenced was stopped from going on."""
    faults: Counter[str] = field(default_factory=Counter)
    points: set[str] = field(default_factory=set)
    """The crash points that it reached."""
    features: set[str] = field(default_factory=set)
    """The features of its workload."""

    def __str__(self) -> str:
        faults = ", ".join(f"{count} {kind}" for kind, count in sorted(self.faults.items())) or "no faults"
        return (
            f"seed {self.seed}: {self.workload}; {self.results} results, {self.late} late rows, "
            f"{self.lives} lives, {self.replays} epochs run again; {faults}, {self.refused} refused, "
            f"{self.fenced} fenced"
        )


def never_reached(outcomes: Sequence[SimulationOutcome]) -> set[str]:
    """Crash points that no simulation reached."""
    return set(POINTS) - {point for outcome in outcomes for point in outcome.points}
