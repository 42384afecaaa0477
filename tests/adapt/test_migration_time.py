"""How long migrations take: by the papers' models, compared with counted work, and as explain says it."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from midstream.adapt.cost import work_in_units
from midstream.adapt.estimate import Estimator
from midstream.adapt.migration_cost import migration_costs
from midstream.adapt.migration_time import black_boxes, describe_times
from midstream.migration.paper_models import BlackBoxModel, ghm_duration, gms_duration
from midstream.plan.tree import parse_plan
from midstream.state.costs import SECONDS_PER_UNIT, Calibration
from tests.adapt.adaptive_run import FIXED, adaptive_run, explanation
from tests.adapt.synthetic_streams import clique, epochs_of, query_of, uniform
from tests.recorded_run import RecordedRun

NAMES = "abcd"
WINDOW = 20
OLD, NEW = "((a b) c) d", "a (b (c d))"
WARM_UP, MEASURED = 16, 8
EPOCHS = epochs_of(dict.fromkeys(NAMES, 8.0), dict.fromkeys(NAMES, uniform(120)), WARM_UP + MEASURED)


def warmed_up(window: float | None = WINDOW) -> RecordedRun:
    query = query_of(NAMES, clique(NAMES), window=window)
    return adaptive_run(OLD, FIXED, query).process(EPOCHS[:WARM_UP])


def boxes_of(run: RecordedRun, partitions: int = 1) -> BlackBoxModel:
    layout, plan = run.join.coordinator.layout(run.last), parse_plan(NEW, NAMES)
    estimator = Estimator(run.query, run.last.statistics)
    return black_boxes(layout, plan, estimator, partitions, migration_costs(layout, plan, estimator))


def test_what_is_estimated_is_what_is_counted():
    run = warmed_up()
    boxes = boxes_of(run)
    run.join.migrate(NEW, "moving_state")
    run.process(EPOCHS[WARM_UP:])
    rebuilding = work_in_units(run.work[WARM_UP]["new"]) * SECONDS_PER_UNIT
    assert gms_duration(boxes) == pytest.approx(rebuilding, rel=0.25)
    assert boxes_of(run, partitions=4).t_new == pytest.approx(boxes_of(run).t_new / 4)


def test_a_hybrid_takes_longer_the_busier_the_machine_is():
    boxes = boxes_of(warmed_up())
    busy = boxes.load_old + boxes.load_new
    assert 0 < busy < 1
    assert ghm_duration(boxes) == pytest.approx(gms_duration(boxes) / (1 - busy))


@pytest.mark.parametrize(
    ("window", "strategies"),
    [
        (WINDOW, ["hybrid", "hybrid with background work", "moving_state", "parallel_track"]),
        (None, ["hybrid with background work", "moving_state"]),
    ],
)
def test_each_strategy_that_ends_is_described(window, strategies):
    run = warmed_up(window)
    layout, plan = run.join.coordinator.layout(run.last), parse_plan(NEW, NAMES)
    lines = list(describe_times(layout, plan, Estimator(run.query, run.last.statistics), 1))
    described = dict(line.split(": ") for line in lines)
    assert list(described) == strategies
    assert described["moving_state"].endswith(" to catch up")
    waiting = {described[name] for name in strategies if name in ("hybrid", "parallel_track")}
    assert waiting == ({"20 s"} if window else set())
    fastest, slowest = described["hybrid with background work"].removeprefix("from ").split(" to ")
    assert fastest.endswith(" ms")
    assert slowest.endswith(" s")


def test_a_plan_that_is_too_slow_never_catches_up():
    run = warmed_up()
    statistics = replace(run.last.statistics, calibration=Calibration(seconds_per_unit=1.0))
    layout, plan = run.join.coordinator.layout(run.last), parse_plan(NEW, NAMES)
    lines = list(describe_times(layout, plan, Estimator(run.query, statistics), 1))
    assert any(line.endswith(" s without results, and it never catches up") for line in lines)
    assert "hybrid with background work: from 20 s to 20 s" in lines


def test_nothing_is_waited_for_if_the_new_plan_lacks_nothing():
    run = warmed_up()
    layout, plan = run.join.coordinator.layout(run.last), parse_plan("a b c d", NAMES)
    lines = list(describe_times(layout, plan, Estimator(run.query, run.last.statistics), 1))
    assert "hybrid: 0 ms" in lines
    assert "moving_state: 0 ms without results, then 0 ms to catch up" in lines


def test_explain_says_how_long_a_migration_to_the_best_plan_takes():
    run, said = adaptive_run("(a b) c"), 0
    for epoch in epochs_of(
        dict.fromkeys("abc", 4.0), {"a": uniform(5), **dict.fromkeys("bc", uniform(50))}, 8
    ):
        decision = run.process([epoch]).last.adaptation.last_decision
        is_best = decision is None or decision.best_plan == run.last.plan
        assert ("\n  A migration takes\n    hybrid: " in explanation(run)) is not is_best
        said += not is_best
    assert said
