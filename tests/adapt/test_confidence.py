"""Confidence: of estimates said to be p % sure, p % are within the stated factor of the truth."""

from __future__ import annotations

import numpy as np
import pytest

from midstream.adapt.estimate import SURE_FACTOR, Estimator
from tests.adapt.synthetic_streams import clique, epochs_of, query_of, statistics_of, uniform
from tests.adapt.timed_ids import draw_ids

WINDOW = 20.0


def uniform_keys(seed: int, rate: float, matches: float) -> tuple[float, float]:
    """How sure an estimate is, and by which factor it is wrong: keys come at any time."""
    domain = max(4, round(rate * WINDOW / matches))
    query = query_of("ab", clique("ab"), WINDOW)
    epochs = epochs_of({"a": rate, "b": rate}, dict.fromkeys("ab", uniform(domain)), 24, seed=seed)
    estimate = Estimator(query, statistics_of(query, epochs)).estimate("ab")
    return estimate.confidence, estimate.value / (2 * WINDOW * rate * rate / domain)


def ids_together(seed: int, rate: float, missing: float) -> tuple[float, float]:
    """The same for ids that come once in each stream, some of them not at all."""
    query = query_of("abc", clique("abc"), WINDOW)
    streams = draw_ids("abc", rate, 60, delay=0.1 * WINDOW, missing=missing, seed=seed)
    estimate = Estimator(query, streams.statistics(query, epoch=2.5)).estimate("abc")
    return estimate.confidence, estimate.value / (rate * (1 - missing) ** 3)


CASES = [(uniform_keys, rate, matches) for rate in (1, 3, 12, 100) for matches in (0.05, 0.3, 1.5)] + [
    (ids_together, rate, missing) for rate in (0.3, 1, 4, 15, 100) for missing in (0.0, 0.5, 0.8)
]


@pytest.mark.slow
def test_estimates_are_as_good_as_they_are_said_to_be():
    drawn = [case(seed, rate, other) for case, rate, other in CASES for seed in range(8)]
    sure, ratios = (np.array(column) for column in zip(*drawn, strict=True))
    is_right = (ratios <= SURE_FACTOR) & (ratios >= 1 / SURE_FACTOR)
    for low, high in ((0.0, 0.4), (0.4, 0.8), (0.8, 0.98), (0.98, 1.01)):
        of_bin = (sure >= low) & (sure < high)
        assert of_bin.sum() >= 20
        # Three standard deviations of as many draws.
        chance = 3 * np.sqrt(max(sure[of_bin].mean() * (1 - sure[of_bin].mean()), 0.001) / of_bin.sum())
        assert is_right[of_bin].mean() == pytest.approx(sure[of_bin].mean(), abs=chance), (low, high)
