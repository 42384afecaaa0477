"""The cost model: how much work the parts of a plan cause.

Costs are per second of event time. ``plan_cost.py`` adds them up over a layout, ``subplan_cost.py`` over the
subplans that the optimizer compares, ``migration_cost.py`` over the steps of a migration. What each kind of
work costs is said in one place, ``state/costs.py``, and learned from what was measured (``calibrate.py``).
The same weights turn the work that tasks count into units, so that estimates and what was done compare.
"""

from __future__ import annotations

from dataclasses import dataclass

from midstream.adapt.estimate import Estimator, Streams
from midstream.engine.work import WorkCounts
from midstream.state.costs import DEFAULT_WEIGHTS, Cost, CostWeights

EXPIRED_CANDIDATE_FACTOR = 1.5
"""Matches per live match: a slice is dropped as a whole, so probes also match rows that have expired."""
INDEX_VALUE_BYTES = 8.0
"""Each value in an index slice: a row's hash, and for each of its streams a reference and an event time."""


@dataclass(frozen=True, slots=True)
class CostModel:
    """What the parts of a plan cost, by what is estimated of the streams. All of it is linear in rows."""

    estimator: Estimator

    @property
    def weights(self) -> CostWeights:
        """What each kind of work costs, as far as the running query has shown."""
        return self.estimator.statistics.calibration.weights

    def probe_step(self, probed: Streams, *, probing_rows: float, matched_rows: float) -> Cost:
        """Rows search the state of some streams, and each match becomes a combined row."""
        return Cost(
            probes=probing_rows * self.estimator.slices(probed),
            # A combined row expires with its oldest component, but is stored until its newest one expires.
            candidates=EXPIRED_CANDIDATE_FACTOR * matched_rows * len(probed),
            intermediate_rows=matched_rows,
        )

    def index(self, streams: Streams) -> Cost:
        """The rows of a state are stored in the order of one key; for each further key as much again."""
        row_bytes = INDEX_VALUE_BYTES * (1 + 2 * len(streams))
        return Cost(
            inserted_rows=self.estimator.rate(streams),
            stored_bytes=row_bytes * self.estimator.stored_rows(streams),
        )

    def fragment_input(self, streams: Streams) -> Cost:
        """Rows enter a fragment: by a shuffle, and with their payload, which is stored where they enter."""
        estimator = self.estimator
        return Cost(
            sent_rows=estimator.rate(streams),
            stored_bytes=estimator.row_bytes(streams) * estimator.stored_rows(streams),
        )

    def state_bytes(self, streams: Streams) -> float:
        """The size of a state, with the payload of its rows."""
        return self.index(streams).stored_bytes + self.fragment_input(streams).stored_bytes

    def forwarding(self, stream: Streams) -> Cost:
        """Rows of a stream pass through a stage before the one of their fragment."""
        return Cost(sent_rows=self.estimator.rate(stream))

    def additional_stage(self) -> Cost:
        """Every epoch has one stage more than the first."""
        return Cost(stages=self.estimator.epochs_per_second)


def unplaced_factor(partitions: int, *, is_placed: bool) -> int:
    """How many times the work of a fragment counts: if no key places it, one partition does it all."""
    return 1 if is_placed else partitions


def counted_cost(work: WorkCounts) -> Cost:
    """The work that tasks have counted, by kind."""
    return Cost(
        probes=work.probes,
        candidates=work.candidates,
        intermediate_rows=work.intermediate_rows,
        inserted_rows=work.inserted_rows,
        sent_rows=work.sent_rows,
        scanned_rows=work.scanned_rows,
    )


def work_in_units(work: WorkCounts, weights: CostWeights = DEFAULT_WEIGHTS) -> float:
    """The work that tasks have counted, in units."""
    return counted_cost(work).units(weights)
