"""The formulas of the paper for black boxes predict, within a quarter, what is counted in runs."""

from benchmarks.replacement import (
    Setting,
    clocks_of,
    model_of,
    model_of_filling,
    predicted_epochs,
    predicted_spike,
    run_replacement,
)
from midstream.migration.paper_models import gms_duration, gpt_cpu

SETTING = Setting(window=24, rows=40, background=1, measured=40)
WITHIN = 0.25


def near(counted: float, predicted: float) -> bool:
    return abs(counted - predicted) <= WITHIN * predicted


def test_durations_and_work_are_as_predicted():
    model = model_of(SETTING)
    epochs = predicted_epochs(SETTING, model)
    moving, track, hybrid = (
        run_replacement(SETTING, f"generalized_{name}")
        for name in ("moving_state", "parallel_track", "hybrid")
    )
    # All stored rows at once, besides those of the epoch.
    of_epoch = model.load_new
    assert near(moving.new_work[0] - of_epoch, gms_duration(model))
    assert (moving.live, moving.ended) == (0, 1)
    # Both plans for a window, the new one without rows at first.
    assert track.live == 0
    assert near(track.ended, epochs["generalized_parallel_track"])
    assert near(track.work, gpt_cpu(model_of_filling(SETTING, model)))
    # Until all stored rows, and those that have come meanwhile, are replayed.
    assert near(hybrid.live, epochs["generalized_hybrid"])
    assert hybrid.ended - hybrid.live == 1
    # Output is never interrupted: of each plan pair the same.
    assert moving.results == track.results == hybrid.results


def test_moving_state_suspends_results_and_the_spike_after_it_is_as_long_as_predicted():
    # Short epochs, since rows wait for the end of theirs.
    setting = Setting(window=96, rows=15, measured=40, load=0.4)
    model = model_of(setting)
    course = run_replacement(setting, "generalized_moving_state")
    clock = clocks_of(setting, model, {"generalized_moving_state": course})["generalized_moving_state"]
    duration, spike = predicted_spike(setting, model)
    assert near(clock.replayed, duration)
    assert near(clock.spike, spike)
    # No result comes while stored rows are replayed; then as many as the machine can make, then as usual.
    first, last = int(clock.replayed), int(clock.caught_up)
    usual = sum(clock.results[last + 2 :]) / len(clock.results[last + 2 :])
    assert sum(clock.results[:first]) == 0
    in_spike = sum(clock.results[first + 1 : last]) / (last - first - 1)
    assert near(in_spike, usual / setting.load)
