"""The simulator detects bugs in setting watermarks back: with a bug put in, a seed breaks a promise."""

from __future__ import annotations

from itertools import islice

import numpy as np
import pytest

from midstream.runtime import watermark_reset
from midstream.testing.simulate import _Simulation
from tests.testing.eventful_seeds import broken_promises, make_eventful, small_and_long

TRIED = 40


@pytest.fixture
def seeds(monkeypatch):
    """Seeds in which a watermark runs away and is set back, with many faults."""
    rates = {"pause_rate": 0.05, "crash_rate": 0.01, "change_rate": 0.0, "ask_rate": 0.0}
    # The watermark of a stream runs away in the seeds that set one back by themselves.
    drawn = [seed for seed in islice(small_and_long(), 3 * TRIED) if _Simulation(seed).reset_rate]
    make_eventful(monkeypatch, reset_rate=1.0, stop_rate=0.5, **rates)
    return drawn[:TRIED]


def broken_promise(seeds: list[int], likely: int) -> str:
    """The promise that the first failing seed breaks; ``likely`` is one that fails."""
    return next(iter(broken_promises(seeds, likely=[likely])), "none")


def test_rows_that_the_runaway_watermark_has_cost_and_that_come_back_are_seen(monkeypatch, seeds):
    def far_behind_too(expiry, times, stream):
        return times[stream] < expiry.watermarks[stream] if stream in times else np.ones(1, np.bool_)

    monkeypatch.setattr(watermark_reset, "_may_join", far_behind_too)
    assert broken_promise(seeds, likely=221) in ("prefix", "conservation")


def test_a_stream_that_stays_active_in_the_future_is_seen(monkeypatch, seeds):
    monkeypatch.setattr(watermark_reset, "_limit_last_active", lambda marks: marks)
    assert broken_promise(seeds, likely=25) == "conservation"
