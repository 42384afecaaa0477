"""Percentiles of lists of values, for all lists at once."""

from __future__ import annotations

import numpy as np
import polars as pl


def interpolated(lists: pl.Series, share: float) -> pl.Series:
    """The value at a share of each list of numbers, between two neighbours in proportion; null if empty.

    The formula is that of Spark's ``percentile``, where NaN is the largest number.
    """
    counts = lists.list.len().to_numpy().astype(np.int64)
    position = (np.maximum(counts, 1) - 1) * share
    lower, upper = np.floor(position), np.ceil(position)
    # Of each list two values are needed: selecting them takes a tenth of the time of sorting it.
    low, high = (
        lists.list.agg(pl.element().quantile(share, side)).to_numpy() for side in ("lower", "higher")
    )
    with np.errstate(invalid="ignore"):
        between = (upper - position) * low + (position - lower) * high
    values = np.where((lower == upper) | (low == high), low, between)
    frame = pl.DataFrame({"value": values, "count": counts})
    return frame.select(pl.when(pl.col("count") > 0).then(pl.col("value"))).to_series()


def nearest(lists: pl.Series, share: float) -> pl.Series:
    """The smallest value of each list that at least a share of it is not above; null if it is empty."""
    counts = lists.list.len().cast(pl.Int64)
    ordered = lists.list.sort()
    position = (counts * share).ceil().cast(pl.Int64) - 1
    return ordered.list.get(position.clip(lower_bound=0), null_on_oob=True)
