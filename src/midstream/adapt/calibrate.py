"""Learning what each kind of work costs: counted work against measured time.

The kinds of work of a query are strongly correlated: each row is inserted, probes, and finds about as many
others as the last one. So most directions cannot be told apart, and plain least squares would make nonsense
of them. Here each weight is pulled towards its default, scaled by how fast the machine is on the whole: what
the measurements do not say stays at the ratio of the defaults. No weight leaves a range around that, so none
is zero or negative.

Parts that are measured by themselves, such as passing rows on, have kinds of work of their own. A measurement
counts by the share that each kind has in it, so that long epochs count no more than short ones; it fades as
others follow. One that is far from the median of the last ones, as after a pause or a jump of a clock, is
brought near it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from statistics import median

from msgspec.structs import replace

from midstream.state.costs import (
    DEFAULT_WEIGHTS,
    SECONDS_PER_UNIT,
    Calibration,
    CostWeights,
    MeasuredPart,
    Measurement,
)

RESULTS, STEPS, RECEIVES = "results", "steps", "receives"
"""Counts beside the kinds of work: they take time, but the same under every plan, or almost."""
_DEFAULTS: dict[str, float] = {
    "probes": DEFAULT_WEIGHTS.probes,
    "candidates": DEFAULT_WEIGHTS.candidates,
    "intermediate_rows": DEFAULT_WEIGHTS.intermediate_rows,
    "inserted_rows": DEFAULT_WEIGHTS.inserted_rows,
    "scanned_rows": DEFAULT_WEIGHTS.scanned_rows,
    RESULTS: 4.0,
    # The calls of a step: some three milliseconds, however few rows there are.
    STEPS: 60_000.0,
    "sent_rows": DEFAULT_WEIGHTS.sent_rows,
    # What a task takes to receive anything, some two milliseconds.
    RECEIVES: 40_000.0,
    "stages": DEFAULT_WEIGHTS.stages,
}
_KINDS = tuple(_DEFAULTS)
_COUNTS: dict[MeasuredPart, tuple[str, ...]] = {
    "join": _KINDS[: _KINDS.index("sent_rows")],
    "send": ("sent_rows", RECEIVES),
    "stage": ("stages",),
}
# A weight is at most this many times its default, or that much smaller, at the speed of the machine. Stages
# are of another nature: they wait, and depend on how Spark is run.
_RANGE = dict.fromkeys(_KINDS, 8.0) | {"sent_rows": 40.0, "stages": 40.0}
# A measurement counts half as much after 69 others.
_FADING = 0.99
# The defaults count as this many measurements of nothing but that kind. With fewer, the first epochs, whose
# states are not full yet, say more of how kinds differ than they know.
# What is measured by itself needs less to hold on to.
_PRIOR_MEASUREMENTS = dict.fromkeys(_KINDS, 1.0) | {"sent_rows": 0.1, "stages": 0.1}
# How many measurements tell what is usual, how many it takes to begin, and how far from usual one may be.
_RECENT = 9
_MIN_RECENT = 3
_MAX_DEVIATION = 2.0
# Sweeps over all weights; each brings them closer to the least squares within their ranges.
_SWEEPS = 60
# Less than a clock can tell.
_MIN_SECONDS = 1e-9


def learn(calibration: Calibration, measurements: Iterable[Measurement]) -> Calibration:
    """What is known after the measurements of an epoch."""
    sums = _Sums(calibration)
    recent = dict(calibration.recent)
    has_learned = False
    for measured in measurements:
        units = {kind: _DEFAULTS[kind] * measured.counts.get(kind, 0.0) for kind in _COUNTS[measured.part]}
        total = sum(units.values())
        if total <= 0 or not measured.seconds < float("inf"):
            continue
        rate = max(measured.seconds, _MIN_SECONDS) / total
        before = recent.get(measured.part, ())
        recent[measured.part] = (*before, rate)[-_RECENT:]
        if len(before) < _MIN_RECENT:
            continue
        usual = median(before)
        rate = min(max(rate, usual / _MAX_DEVIATION), usual * _MAX_DEVIATION)
        sums.add({kind: value / total for kind, value in units.items()}, rate / SECONDS_PER_UNIT)
        has_learned = True
    if not has_learned:
        return replace(calibration, recent=recent)
    seconds_per_unit, factors = sums.fit()
    kinds = [kind for kind in CostWeights.__struct_fields__ if kind in factors]
    weights = {kind: _DEFAULTS[kind] * factors[kind] for kind in kinds}
    return Calibration(
        weights=replace(DEFAULT_WEIGHTS, **weights),
        seconds_per_unit=seconds_per_unit,
        epochs=calibration.epochs + 1,
        products=tuple(sums.products),
        sums=tuple(sums.sums),
        recent=recent,
    )


class _Sums:
    """The sums of a least-squares fit of how long kinds of work take, as multiples of the defaults."""

    def __init__(self, calibration: Calibration) -> None:
        size = len(_KINDS)
        is_known = len(calibration.sums) == size and len(calibration.products) == size * size
        self.products = list(calibration.products) if is_known else [0.0] * (size * size)
        self.sums = list(calibration.sums) if is_known else [0.0] * size

    def add(self, shares: Mapping[str, float], time: float) -> None:
        """Take a measurement; earlier ones of the same kinds fade."""
        size = len(_KINDS)
        places = [(_KINDS.index(kind), share) for kind, share in shares.items()]
        for i, share in places:
            for j, other in places:
                self.products[i * size + j] = self.products[i * size + j] * _FADING + share * other
            self.sums[i] = self.sums[i] * _FADING + share * time

    def fit(self) -> tuple[float, dict[str, float]]:
        """Seconds per unit, and each weight as a multiple of its default."""
        speed = self._speed()
        size = len(_KINDS)
        times = [speed] * size
        for _ in range(_SWEEPS):
            for i, kind in enumerate(_KINDS):
                others = sum(self.products[i * size + j] * times[j] for j in range(size) if j != i)
                prior = _PRIOR_MEASUREMENTS[kind]
                best = (self.sums[i] - others + prior * speed) / (self.products[i * size + i] + prior)
                times[i] = min(max(best, speed / _RANGE[kind]), speed * _RANGE[kind])
        return speed * SECONDS_PER_UNIT, {
            kind: time / speed for kind, time in zip(_KINDS, times, strict=True)
        }

    def _speed(self) -> float:
        """How long joins take on the whole, as a multiple of the defaults; if none was measured, as long."""
        size = len(_KINDS)
        joins = [_KINDS.index(kind) for kind in _COUNTS["join"]]
        measured = sum(self.products[i * size + j] for i in joins for j in joins)
        return sum(self.sums[i] for i in joins) / measured if measured > 0 else 1.0
