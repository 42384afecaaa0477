"""References: row ids, by which payload is found and which tell when a row arrived.

A **reference** is the epoch in which the row arrived, the engine partition that ingested it, and its position
among the rows that arrived there in that epoch. The epoch comes first, so "older than epoch e" is one
comparison of integers. References stay valid when slices merge, because merging keeps segments whole, and
when a partition group gets another partition, because no two partitions give the same reference. Rows that a
migration moves to another partition get new references there, with the same epochs.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from midstream.errors import MigrationError, StreamError

Integers = npt.NDArray[np.int64]

_POSITION_BITS = 24
_PARTITION_BITS = 10
MAX_PARTITIONS = 1 << (_PARTITION_BITS - 1)
MAX_POSITIONS = 1 << _POSITION_BITS
MAX_BATCHES = MAX_PARTITIONS
"""So many batches of rows, with ``MAX_POSITIONS`` rows each, may be moved in one epoch, to all partitions."""
READ_LESS_HINT = "read less per trigger (maxFilesPerTrigger, maxOffsetsPerTrigger) or use more partitions"


def segment_of(epoch: int, partition: int) -> int:
    """The id of a segment: the part of a reference that rows share which arrive together in one partition."""
    return (epoch << _PARTITION_BITS) | partition


def backfilled_segment_of(epoch: int, partition: int, partitions: int, batch: int) -> int:
    """The id of a segment of rows that were moved to a partition after they had arrived in another.

    A flag distinguishes it from segments of rows that arrived there. In place of the number of the partition
    it has one for each batch in each of the partitions: a state that is moved at once may have more rows of
    an epoch than a segment has positions.
    """
    if batch >= MAX_BATCHES // partitions:
        raise MigrationError(
            f"a state must come in at most {MAX_BATCHES // partitions:,} batches to be moved at once",
            got=f"batch {batch + 1:,}",
            hint="migrate by hybrid, which moves large states in portions",
        )
    return (epoch << _PARTITION_BITS) | MAX_PARTITIONS | (batch * partitions + partition)


def new_references(segment: int, count: int) -> Integers:
    """References for the ``count`` rows of a segment."""
    if count > MAX_POSITIONS:
        raise StreamError(
            f"an epoch must bring at most {MAX_POSITIONS:,} rows of a stream to one partition",
            got=f"{count:,}",
            hint=READ_LESS_HINT,
        )
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
