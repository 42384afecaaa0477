"""Statistics in the manifest: enough to estimate the cost of any plan, and to repeat a decision.

Figures fade: the weight of an epoch decays exponentially with event time, with a time constant of half the
window, so that they describe the rows that may still be joined.
"""

from __future__ import annotations

import msgspec

from midstream.plan.state_id import StateId
from midstream.state.costs import Calibration, Cost


class KeyStatistics(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Rows of a stream that have a sampled or frequent key of a class; those near in time are one entry."""

    threshold: float = 1.0
    """The fraction of keys that is sampled: those whose hash, as a fraction of the largest, is below it."""
    keys: bytes = b""
    """The key of each entry: hashes in ascending order, 8 bytes each, little-endian."""
    weights: bytes = b""
    """The rows of each entry, 4 bytes each: floating-point numbers, little-endian."""
    times: bytes = b""
    """The event time of each entry, the mean of its rows: microseconds, 8 bytes each, little-endian."""


class StreamStatistics(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The rows of a stream, faded."""

    rows: float = 0.0
    bytes: float = 0.0
    keys: dict[str, KeyStatistics] = {}
    """By the name of the stream's column in a key class."""
    position: int | None = None
    """The event time that the stream has come to, whatever single rows say; in microseconds."""
    last_end: int | None = None
    """The event time up to which most rows of its last epoch were; the position may not have followed yet."""


class Statistics(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The statistics of all streams after an epoch."""

    seconds: float = 0.0
    """The event time that the figures cover, faded: rows / seconds is a rate."""
    elapsed: float = 0.0
    """The event time since the first statistics, not faded."""
    epochs: float = 0.0
    """The number of epochs, faded."""
    streams: dict[str, StreamStatistics] = {}
    frequent_keys: dict[int, bytes] = {}
    """For each key class, the keys that a large share of some stream's rows have: hashes, 8 bytes each."""
    produced: dict[StateId, float] = {}
    """Rows that the running plan has produced for each of its states, and results, faded."""
    spent: Cost = Cost()
    """The work that the running plan has done, faded."""
    observed_seconds: float = 0.0
    """The event time that ``produced`` and ``spent`` cover, faded; a new plan starts from zero."""
    calibration: Calibration = Calibration()
    """What each kind of work costs."""
