"""References: row ids, by which payload is found and which tell when a row arrived.

A **reference** is the epoch in which the row arrived, the engine partition that ingested it, and its position
among the rows that arrived there in that epoch. The epoch comes first, so "older than epoch e" is one
comparison of integers. References stay valid when slices merge, because merging keeps segments whole. Rows
that a migration moves to another partition get new references there, with the same epochs and a flag.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from midstream.errors import MigrationError, StreamError

Integers = npt.NDArray[np.int64]

_POSITION_BITS = 24
_PARTITION_BITS = 10
READ_LESS_HINT = "read less per trigger (maxFilesPerTrigger, maxOffsetsPerTrigger) or use more partitions"

MAX_PARTITIONS = 1 << (_PARTITION_BITS - 1)
MAX_POSITIONS = 1 << _POSITION_BITS


def segment_of(epoch: int, partition: int, *, backfilled: bool = False) -> int:
    """The id of a segment: the part of a reference that rows share which arrive together in one partition.

    A flag distinguishes rows that were moved here later from those that arrived here.
    """
    return (epoch << _PARTITION_BITS) | (MAX_PARTITIONS if backfilled else 0) | partition


def new_references(epoch: int, partition: int, count: int, *, backfilled: bool = False) -> Integers:
    """References for ``count`` rows that arrive together."""
    if count > MAX_POSITIONS and backfilled:
        raise MigrationError(
            f"a state must have at most {MAX_POSITIONS:,} rows in one partition to be moved there",
            got=f"{count:,}",
            hint="move to a plan that keeps the state by the key it has",
        )
    if count > MAX_POSITIONS:
        raise StreamError(
            f"an epoch must bring at most {MAX_POSITIONS:,} rows of a stream to one partition",
            got=f"{count:,}",
            hint=READ_LESS_HINT,
        )
    segment = segment_of(epoch, partition, backfilled=backfilled)
    return (segment << _POSITION_BITS) + np.arange(count, dtype=np.int64)


def split_references(references: Integers) -> tuple[Integers, Integers]:
    """Segment and position of each reference."""
    return references >> _POSITION_BITS, references & (MAX_POSITIONS - 1)


def epoch_of_segment(segment: int) -> int:
    """The epoch in which the rows of a segment arrived."""
    return segment >> _PARTITION_BITS


def epoch_of(references: Integers) -> Integers:
    """The epoch in which each referenced row arrived."""
    return references >> (_POSITION_BITS + _PARTITION_BITS)


def arrived_between(references: Integers, first: int, end: int) -> npt.NDArray[np.bool_]:
    """Whether each referenced row arrived in the epochs from ``first`` to before ``end``."""
    bits = _POSITION_BITS + _PARTITION_BITS
    arrived: npt.NDArray[np.bool_] = (references >= first << bits) & (references < end << bits)
    return arrived
