"""The cost model: what each kind of work costs, and how much work the parts of a plan cause.

Costs are per second of event time, in units: a unit is the time of one probe, about 50 ns. This is the only
place that says what a probe, a stored row, a shuffled row or a stage costs. ``plan_cost.py`` adds it up over
a layout, ``subplan_cost.py`` over the subplans that the optimizer compares, ``migration_cost.py`` over the
steps of a migration. The same weights turn the work that tasks count into units, so that estimates can be
compared with what was really done.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

from midstream.adapt.estimate import Estimator, Streams
from midstream.engine.work import WorkCounts

SECONDS_PER_UNIT = 50e-9
"""About how long a unit takes; only estimates of time need it, which a person reads."""

UNITS_PER_PROBE = 1.0
"""One key is looked up in one slice."""
UNITS_PER_CANDIDATE = 1.0
"""A row of a state that has the hash of the key: it is read and compared."""
UNITS_PER_INTERMEDIATE_ROW = 2.0
"""A pair of rows is put together."""
UNITS_PER_INSERTED_ROW = 4.0
"""A row is sorted into a state, written, and later merged into larger slices."""
UNITS_PER_SCANNED_ROW = 0.05
"""A stored row is looked at on the way to others: whether it arrived in an epoch that is being rebuilt."""
UNITS_PER_STORED_BYTE = 0.002
"""A byte of state for a second: the more is stored, the more is merged, read and kept in memory."""
UNITS_PER_SENT_ROW = 20.0
"""A row is encoded, shuffled to another stage, and decoded there."""
UNITS_PER_STAGE = 1_000_000.0
"""Spark runs one more stage in the job of an epoch: about 50 ms, however few rows there are."""

EXPIRED_CANDIDATE_FACTOR = 1.5
"""Matches per live match: a slice is dropped as a whole, so probes also match rows that have expired."""
INDEX_VALUE_BYTES = 8.0
"""Each value in an index slice: a row's hash, and for each of its streams a reference and an event time."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Cost:
    """Work in a second of event time, by kind."""

    probes: float = 0.0
    candidates: float = 0.0
    intermediate_rows: float = 0.0
    inserted_rows: float = 0.0
    scanned_rows: float = 0.0
    stored_bytes: float = 0.0
    sent_rows: float = 0.0
    stages: float = 0.0

    @property
    def units(self) -> float:
        """All kinds of work together, each by its weight."""
        return (
            UNITS_PER_PROBE * self.probes
            + UNITS_PER_CANDIDATE * self.candidates
            + UNITS_PER_INTERMEDIATE_ROW * self.intermediate_rows
            + UNITS_PER_INSERTED_ROW * self.inserted_rows
            + UNITS_PER_SCANNED_ROW * self.scanned_rows
            + UNITS_PER_STORED_BYTE * self.stored_bytes
            + UNITS_PER_SENT_ROW * self.sent_rows
            + UNITS_PER_STAGE * self.stages
        )

    def __add__(self, other: Cost) -> Cost:
        return Cost(**{kind: getattr(self, kind) + getattr(other, kind) for kind in _KINDS})

    def __mul__(self, factor: float) -> Cost:
        return Cost(**{kind: getattr(self, kind) * factor for kind in _KINDS})


_KINDS = tuple(kind.name for kind in fields(Cost))


@dataclass(frozen=True, slots=True)
class CostModel:
    """What the parts of a plan cost, by what is estimated of the streams. All of it is linear in rows."""

    estimator: Estimator

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


def work_in_units(work: WorkCounts) -> float:
    """The work that tasks have counted, in units."""
    return Cost(
        probes=work.probes,
        candidates=work.candidates,
        intermediate_rows=work.intermediate_rows,
        inserted_rows=work.inserted_rows,
        sent_rows=work.sent_rows,
        scanned_rows=work.scanned_rows,
    ).units
