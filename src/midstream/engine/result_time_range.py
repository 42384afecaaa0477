"""Which results leave which of two boxes, by their times, while a new box replaces an old one.

Both boxes run in full. A result leaves the old box if its time is not after the hand-over, and the new
box if it is. A window of aggregates leaves the new box only if it begins after the hand-over.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from midstream.engine.arrays import as_array, as_column
from midstream.query.aggregation import Aggregation, AggregationWindows


@dataclass(frozen=True, slots=True)
class ResultTimeRange:
    """The results, or windows of them, that leave one box."""

    after: int | None = None
    """Only those after this time, if any is given."""
    until: int | None = None
    """Only those until this time, if any is given."""
    is_empty: bool = False
    """Whether nothing leaves: the box is catching up."""

    def filter_results(self, timed: pa.Table, windows: AggregationWindows | None) -> pa.Table:
        """The results that leave, or that are in windows that do; their times are the last column."""
        if self.is_empty:
            return timed.slice(0, 0)
        times = as_array(timed.columns[-1])
        # A window that begins by a time may have results until its end.
        last = None if self.until is None else self.until + (0 if windows is None else windows.length)
        return timed.filter(as_column(self._mask(times, self.after, last)))

    def after_window_end(self, windows: AggregationWindows, emitted: int | None) -> int | None:
        """The windows that end by then do not leave any more, or are not this box's."""
        if self.after is None:
            return emitted
        return max(self.after + windows.length, self.after if emitted is None else emitted)

    def until_window_end(self, windows: AggregationWindows, until: int) -> int:
        """The windows that end by then leave, of those that end until a time."""
        return until if self.until is None else min(until, self.until + windows.length)

    def filter_windows(self, aggregation: Aggregation, table: pa.Table) -> pa.Table:
        """The windows that leave, of a table of them."""
        column = table.column(aggregation.window_position).combine_chunks()
        begins = as_array(column.field("start").cast(pa.int64()))
        return table.filter(as_column(self._mask(begins, self.after, self.until)))

    @staticmethod
    def _mask(times: npt.NDArray[np.int64], after: int | None, until: int | None) -> npt.NDArray[np.bool_]:
        mask = np.ones(len(times), np.bool_)
        if after is not None:
            mask &= times > after
        if until is not None:
            mask &= times <= until
        return mask


def results_after(handed_over: int | None) -> ResultTimeRange | None:
    """Those after a hand-over, if there was one; else None, for all."""
    return None if handed_over is None else ResultTimeRange(after=handed_over)
