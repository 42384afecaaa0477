"""How sure a comparison of two plans is: the error of the ratio of their costs.

A cost is a sum of terms, each proportional to the estimated rate of one join. Estimates have errors, and the
estimates of joins that share streams err together. What two plans have in common has the same error in both,
and cancels out of their ratio. So the ratio is known better than either cost, and plans that differ in little
can still be told apart, if what they differ in is sure.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from midstream.adapt.estimate import Estimator, Streams
from midstream.state.costs import Cost, CostWeights

# An estimate cannot be too large by more than all of it: a larger error, of a join that was never seen, means
# that nothing is known, and its estimate is one that cannot be ruled out.
_MAX_ERROR = 1.0
# Stands for zero where something is divided by it.
_TINY = 1e-30


def log_ratio_error(
    one: Mapping[Streams, Cost], other: Mapping[Streams, Cost], *, estimator: Estimator
) -> float:
    """The standard error of the logarithm of the ratio of two costs, given by their terms.

    The errors of two joins are taken to be correlated as far as they share streams: the errors come from the
    rows and keys that each stream happened to have. A join has an equal part of its error from each stream.
    """
    by_stream: dict[str, float] = {}
    weights = estimator.statistics.calibration.weights
    shares = [_shares(terms, weights) for terms in (one, other)]
    for streams in dict.fromkeys(streams for plan in shares for streams in plan if streams):
        difference = shares[0].get(streams, 0.0) - shares[1].get(streams, 0.0)
        error = difference * min(estimator.estimate(streams).error, _MAX_ERROR) / math.sqrt(len(streams))
        # In a fixed order: sums of the same numbers must be the same in every process.
        for name in sorted(streams):
            by_stream[name] = by_stream.get(name, 0.0) + error
    return math.hypot(*(by_stream[name] for name in sorted(by_stream)))


def _shares(terms: Mapping[Streams, Cost], weights: CostWeights) -> dict[Streams, float]:
    units = {streams: cost.units(weights) for streams, cost in terms.items()}
    total = max(math.fsum(units.values()), _TINY)
    return {streams: of_term / total for streams, of_term in units.items()}
