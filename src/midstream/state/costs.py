"""Work by kind, what each kind costs, and what was learned of that from the running query.

Costs are in units: a unit is about the time of one probe. The weights that a query begins with were measured
once, on one machine; those that it learns say what its own rows cost where it runs. They are part of the
statistics in the manifest, so whatever is estimated with them can be repeated.
"""

from __future__ import annotations

from typing import Literal

import msgspec

SECONDS_PER_UNIT = 50e-9
"""About how long a unit takes where nothing was measured yet."""


class Cost(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Work by kind, such as that in a second of event time."""

    probes: float = 0.0
    candidates: float = 0.0
    intermediate_rows: float = 0.0
    inserted_rows: float = 0.0
    scanned_rows: float = 0.0
    stored_bytes: float = 0.0
    sent_rows: float = 0.0
    stages: float = 0.0

    def units(self, weights: CostWeights) -> float:
        """All kinds of work together, each by its weight."""
        return (
            weights.probes * self.probes
            + weights.candidates * self.candidates
            + weights.intermediate_rows * self.intermediate_rows
            + weights.inserted_rows * self.inserted_rows
            + weights.scanned_rows * self.scanned_rows
            + weights.stored_bytes * self.stored_bytes
            + weights.sent_rows * self.sent_rows
            + weights.stages * self.stages
        )

    def __add__(self, other: Cost) -> Cost:
        return Cost(**{kind: getattr(self, kind) + getattr(other, kind) for kind in KINDS})

    def __mul__(self, factor: float) -> Cost:
        return Cost(**{kind: getattr(self, kind) * factor for kind in KINDS})


class CostWeights(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Units for one of each kind of work; the defaults hold until something was learned."""

    probes: float = 1.0
    """One key is looked up in one slice."""
    candidates: float = 1.0
    """A row of a state that has the hash of the key: it is read and compared."""
    intermediate_rows: float = 2.0
    """A pair of rows is put together."""
    inserted_rows: float = 4.0
    """A row is sorted into a state, written, and later merged into larger slices."""
    scanned_rows: float = 0.05
    """A stored row is looked at on the way to others: did it arrive in an epoch that is being rebuilt?"""
    stored_bytes: float = 0.002
    """A byte of state for a second: the more is stored, the more is merged, read and kept in memory."""
    sent_rows: float = 20.0
    """A row is encoded, shuffled to another stage, and decoded there."""
    stages: float = 1_000_000.0
    """Spark runs one more stage in the job of an epoch: about 50 ms, however few rows there are."""


KINDS = Cost.__struct_fields__
NO_WORK = Cost()
DEFAULT_WEIGHTS = CostWeights()

MeasuredPart = Literal["join", "send", "stage"]
"""What is measured by itself: steps with what they write, passing rows on, and the time between stages."""


class Measurement(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What a part of an epoch took in all its tasks, and what it did: kinds of work are counted."""

    part: MeasuredPart
    seconds: float
    counts: dict[str, float]


class Calibration(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What was learned of the cost of each kind of work, and what learning goes on from."""

    weights: CostWeights = DEFAULT_WEIGHTS
    seconds_per_unit: float = SECONDS_PER_UNIT
    epochs: int = 0
    """How many epochs it was learned from."""
    products: tuple[float, ...] = ()
    """The sums of a least-squares fit, faded: of products of the shares of two kinds, row by row."""
    sums: tuple[float, ...] = ()
    """And of each kind's share with the measured time."""
    recent: dict[str, tuple[float, ...]] = {}
    """By part: the last measurements as seconds per unit of the default weights; what is far from their
    median is an outlier."""
