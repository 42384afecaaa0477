"""The formulas of the paper for black boxes predict, within a quarter, what is counted in runs."""

from benchmarks.replacement import Setting, model_of, model_of_filling, predicted_epochs, run_replacement
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
