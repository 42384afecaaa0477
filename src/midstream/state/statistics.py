"""What a manifest says of the streams: enough to estimate any plan's cost, and to decide the same again.

Everything fades: what an epoch brought counts less and less as event time goes on, with a time constant of
half the window, so that the figures are of the rows that a join may still see.
"""

from __future__ import annotations

import msgspec

from midstream.plan.state_id import StateId


class KeyStatistics(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How often a stream has which keys of a class, for a sample of all keys and for the most frequent."""

    threshold: float = 1.0
    """The share of all keys that is sampled: those whose hash, as a fraction of the largest, is below it."""
    keys: bytes = b""
    """Hashes in ascending order, 8 bytes each, little-endian."""
    weights: bytes = b""
    """Rows with each key, faded, 8 bytes each: floating-point numbers, little-endian."""


class StreamStatistics(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a stream brought, faded."""

    rows: float = 0.0
    bytes: float = 0.0
    keys: dict[str, KeyStatistics] = {}
    """By the name of the stream's column in a key class."""


class Statistics(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is known of all streams after an epoch."""

    seconds: float = 0.0
    """Event time that the figures are of, faded: rows / seconds is a rate."""
    elapsed: float = 0.0
    """Event time since the first figures, not faded."""
    epochs: float = 0.0
    """Epochs, faded."""
    streams: dict[str, StreamStatistics] = {}
    frequent_keys: dict[int, bytes] = {}
    """Of each key class, the keys of which some stream has a large share: hashes, 8 bytes each."""
    produced: dict[StateId, float] = {}
    """Rows that the running plan has produced of each of its states and of the results, faded."""
    observed_seconds: float = 0.0
    """The seconds in which ``produced`` was counted, faded; another plan starts from zero."""
