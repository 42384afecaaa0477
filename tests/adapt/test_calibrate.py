"""Learning what work costs: the truth is found where it can be, and nothing wild comes of what cannot."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from itertools import count

import numpy as np
import pytest

from midstream.adapt.calibrate import RESULTS, STEPS, learn
from midstream.adapt.optimizer import best_plan
from midstream.inline import InlineJoin
from midstream.protocol.settings import Settings
from midstream.state.costs import DEFAULT_WEIGHTS, SECONDS_PER_UNIT, Calibration, CostWeights, Measurement
from tests.adapt.adaptive_run import QUERY
from tests.adapt.synthetic_streams import epochs_of, uniform

DEFAULTS = {kind: getattr(DEFAULT_WEIGHTS, kind) for kind in CostWeights.__struct_fields__}
JOINED = ("probes", "candidates", "intermediate_rows", "inserted_rows", RESULTS, STEPS)
USUAL = {"probes": 4e5, "candidates": 3e5, "intermediate_rows": 1e5, "inserted_rows": 5e4}


def measured(counts: Mapping[str, float], true: Mapping[str, float], noise: float = 1.0) -> Measurement:
    """The measurement of a machine on which each kind of work takes so many units."""
    units = sum(true.get(kind, DEFAULTS.get(kind, 0.0)) * number for kind, number in counts.items())
    return Measurement(part="join", seconds=SECONDS_PER_UNIT * units * noise, counts=dict(counts))


def varied(epochs: int, spread: float, seed: int = 0) -> Iterator[dict[str, float]]:
    """The work of epochs whose kinds of work vary independently by a factor."""
    random = np.random.default_rng(seed)
    for _ in range(epochs):
        yield {kind: number * float(spread ** random.uniform(-1, 1)) for kind, number in USUAL.items()}


def after(measurements: Iterator[Measurement]) -> Calibration:
    calibration = Calibration()
    for measurement in measurements:
        calibration = learn(calibration, [measurement])
    return calibration


def relative(calibration: Calibration, kind: str) -> float:
    """How many seconds a kind of work takes, as a multiple of its default."""
    weight: float = getattr(calibration.weights, kind)
    times: float = weight / DEFAULTS[kind] * calibration.seconds_per_unit / SECONDS_PER_UNIT
    return times


def test_the_cost_of_each_kind_is_found_if_they_vary():
    true = {"probes": 0.5, "candidates": 3.0, "intermediate_rows": 2.0, "inserted_rows": 12.0}
    found = after(measured(counts, true) for counts in varied(400, spread=10))
    for kind, units in true.items():
        # The defaults are off by up to a factor of six, at the speed that the machine has on the whole.
        assert 1 / 1.5 < relative(found, kind) / (units / DEFAULTS[kind]) < 1.5, kind
    assert found.epochs > 390


def test_what_cannot_be_told_apart_stays_at_the_ratio_of_the_defaults():
    found = after(measured(USUAL, {}, noise=4.0) for _ in range(100))
    assert found.seconds_per_unit == pytest.approx(4 * SECONDS_PER_UNIT)
    assert {k: getattr(found.weights, k) for k in DEFAULTS} == pytest.approx(DEFAULTS)


@pytest.mark.parametrize("seed", range(5))
def test_noise_does_not_lead_far_from_the_defaults_if_kinds_hardly_vary(seed):
    random = np.random.default_rng(seed)
    epochs = varied(300, spread=1.1, seed=seed)
    found = after(measured(counts, {}, noise=float(np.exp(random.normal(0, 0.2)))) for counts in epochs)
    for kind in USUAL:
        assert 0.6 < getattr(found.weights, kind) / DEFAULTS[kind] < 1.6, kind


def test_no_weight_is_ever_zero_or_negative():
    # More candidates, less time: least squares alone would give them a negative cost.
    epochs = (
        Measurement(part="join", seconds=0.1 / more, counts={"probes": 1e5, "candidates": 1e5 * more})
        for more in [1, 2, 4, 8] * 50
    )
    found = after(epochs)
    assert 0 < found.weights.candidates < 1
    assert all(getattr(found.weights, kind) > 0 for kind in DEFAULTS)
    assert found.seconds_per_unit > 0


@pytest.mark.parametrize("outlier", [1e4, 1e-4, 0.0])
def test_a_pause_or_a_jump_of_the_clock_changes_little(outlier):
    true = {"candidates": 2.0}
    plain = after(measured(counts, true) for counts in varied(60, spread=4))
    with_outliers = after(
        measured(counts, true, noise=outlier if i % 10 == 9 else 1.0)
        for i, counts in enumerate(varied(60, spread=4))
    )
    for kind in USUAL:
        assert relative(with_outliers, kind) == pytest.approx(relative(plain, kind), rel=0.35), kind


@pytest.mark.parametrize("seconds", [float("inf"), float("nan"), -1.0])
def test_what_no_clock_should_say_is_survived(seconds):
    measurements = [measured(counts, {}) for counts in varied(20, spread=2)]
    wild = Measurement(part="join", seconds=seconds, counts=USUAL)
    found = after(iter([wild, *measurements, wild, *measurements]))
    assert all(0 < getattr(found.weights, kind) < float("inf") for kind in DEFAULTS)
    assert found.seconds_per_unit == pytest.approx(SECONDS_PER_UNIT, rel=0.2)


def test_the_first_epochs_say_what_is_usual_even_if_the_very_first_is_slow():
    counts = varied(30, spread=2)
    found = after(measured(c, {}, noise=50.0 if i == 0 else 1.0) for i, c in enumerate(counts))
    assert found.seconds_per_unit == pytest.approx(SECONDS_PER_UNIT, rel=0.1)


def test_another_machine_is_followed():
    def on_two_machines() -> Iterator[Measurement]:
        for i, counts in enumerate(varied(400, spread=3)):
            yield measured(counts, {"inserted_rows": 12.0} if i < 200 else {}, noise=1.0 if i < 200 else 5.0)

    found = after(on_two_machines())
    assert found.seconds_per_unit == pytest.approx(5 * SECONDS_PER_UNIT, rel=0.1)
    assert found.weights.inserted_rows == pytest.approx(4.0, rel=0.2)


def test_parts_that_are_measured_by_themselves_are_known_well():
    epochs = (
        [
            measured(counts, {}),
            Measurement(part="send", seconds=1e5 * 2e-6, counts={"sent_rows": 1e5, "receives": 2}),
            Measurement(part="stage", seconds=0.005, counts={"stages": 1}),
        ]
        for counts in varied(60, spread=2)
    )
    calibration = Calibration()
    for measurements in epochs:
        calibration = learn(calibration, measurements)
    assert calibration.weights.sent_rows == pytest.approx(2e-6 / SECONDS_PER_UNIT, rel=0.2)
    assert calibration.weights.stages == pytest.approx(0.005 / SECONDS_PER_UNIT, rel=0.2)
    assert calibration.weights.probes == pytest.approx(1.0, rel=0.1)


def test_few_rows_say_nothing_of_what_a_sent_row_costs():
    calls = Measurement(part="send", seconds=0.002, counts={"sent_rows": 3.0, "receives": 1.0})
    found = after(calls for _ in range(60))
    assert found.weights.sent_rows == pytest.approx(DEFAULT_WEIGHTS.sent_rows, rel=0.05)


def ticks(seconds: float) -> Callable[[], float]:
    """A clock that goes on with each look at it."""
    steps = count()
    return lambda: seconds * next(steps)


def test_a_query_learns_what_it_measures_and_has_it_in_the_manifest():
    epochs = epochs_of(dict.fromkeys("abc", 8.0), dict.fromkeys("abc", uniform(20)), 20)
    runs = [
        InlineJoin(QUERY, "(a b) c", settings=Settings(1, 1), clock=clock) for clock in (ticks(0.01), None)
    ]
    for run in runs:
        for epoch in epochs:
            run.run_epoch(epoch)
    measured_run, plain = (run.manifest.statistics.calibration for run in runs)
    assert plain == Calibration()
    # The first epoch of a run is not measured, three say what is usual, and the last is not committed yet.
    assert measured_run.epochs == len(epochs) - 1 - 1 - 3
    assert measured_run.seconds_per_unit != SECONDS_PER_UNIT
    join = Measurement(part="join", seconds=1.0, counts=USUAL)
    assert learn(measured_run, [join]) == learn(measured_run, [join])


def test_learned_weights_decide_which_plan_is_best():
    from msgspec.structs import replace

    from midstream.adapt.estimate import Estimator

    run = InlineJoin(QUERY, settings=Settings(1, 1))
    rates = {"a": 40.0, "b": 40.0, "c": 4.0}
    for epoch in epochs_of(rates, {"a": uniform(600), "b": uniform(600), "c": uniform(60)}, 10):
        run.run_epoch(epoch)

    def best(**weights: float) -> str:
        calibration = Calibration(weights=replace(DEFAULT_WEIGHTS, **weights))
        statistics = replace(run.manifest.statistics, calibration=calibration)
        return str(best_plan(Estimator(QUERY, statistics), 1).plan)

    assert "(" in best(inserted_rows=0.01, stored_bytes=1e-9)
    assert "(" not in best(inserted_rows=400.0, probes=0.01)


def test_a_real_clock_leads_to_reasonable_weights():
    run = InlineJoin(QUERY, "(a b) c", settings=Settings(1, 1), clock=time.process_time)
    for epoch in epochs_of(dict.fromkeys("abc", 400.0), dict.fromkeys("abc", uniform(900)), 16):
        run.run_epoch(epoch)
    calibration = run.manifest.statistics.calibration
    assert 1e-9 < calibration.seconds_per_unit < 1e-5
    for kind in JOINED[:4]:
        assert 1 / 8 <= getattr(calibration.weights, kind) / DEFAULTS[kind] <= 8
