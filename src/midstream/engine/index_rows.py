"""Rows inside the engine: a hash, a reference per input, and a time per stream. Never any payload.

A **reference** is a row id: the epoch in which the row arrived, the engine partition that took it in, and
its position among what arrived there then. The epoch comes first, so "older than epoch e" is one
comparison of integers; the id stays good when slices are merged, because merging keeps these runs whole.
Rows that a migration moves to another place get new ids there, of the same epochs and with a mark.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from midstream.engine.arrays import as_array, as_column
from midstream.engine.hashing import Hashes
from midstream.engine.hot_keys import time_order_moves
from midstream.engine.ordering import stable_order
from midstream.errors import MigrationError, StreamError
from midstream.plan.layout import Key, StateId

Integers = npt.NDArray[np.int64]

_POSITION_BITS = 24
_PARTITION_BITS = 10
READ_LESS = "read less per trigger (maxFilesPerTrigger, maxOffsetsPerTrigger) or use more partitions"

MAX_PARTITIONS = 1 << (_PARTITION_BITS - 1)
MAX_POSITIONS = 1 << _POSITION_BITS


def segment_of(epoch: int, partition: int, *, moved: bool = False) -> int:
    """The part of a row id that all rows share which arrive together in one partition.

    Rows that are moved here later have a mark, which tells them apart from those that arrived here.
    """
    return (epoch << _PARTITION_BITS) | (MAX_PARTITIONS if moved else 0) | partition


def new_references(epoch: int, partition: int, count: int, *, moved: bool = False) -> Integers:
    """References for ``count`` rows that arrive together."""
    if count > MAX_POSITIONS and moved:
        raise MigrationError(
            f"a state must have at most {MAX_POSITIONS:,} rows in one partition to be moved there",
            got=f"{count:,}",
            hint="move to a plan that keeps the state by the key it has",
        )
    if count > MAX_POSITIONS:
        raise StreamError(
            f"an epoch must bring at most {MAX_POSITIONS:,} rows of a stream to one partition",
            got=f"{count:,}",
            hint=READ_LESS,
        )
    segment = segment_of(epoch, partition, moved=moved)
    return (segment << _POSITION_BITS) + np.arange(count, dtype=np.int64)


def split_references(references: Integers) -> tuple[Integers, Integers]:
    """Segment and position of each reference."""
    return references >> _POSITION_BITS, references & (MAX_POSITIONS - 1)


def epoch_of(references: Integers) -> Integers:
    """The epoch in which each referenced row arrived."""
    return references >> (_POSITION_BITS + _PARTITION_BITS)


@dataclass(frozen=True)
class IndexRows:
    """Joined rows of some inputs of a fragment. Whoever probes needs them sorted by the hash of ``key``.

    Whoever is searched needs more: :func:`in_time_order`. Some of such rows, in their order, have it as well.
    """

    key: Key
    hashes: Hashes
    references: dict[StateId, Integers]
    times: dict[str, Integers]

    def __len__(self) -> int:
        return len(self.hashes)

    def take(self, positions: npt.NDArray[np.intp] | npt.NDArray[np.bool_]) -> IndexRows:
        """The rows at ``positions``, in that order."""
        return IndexRows(
            self.key,
            self.hashes[positions],
            {name: column[positions] for name, column in self.references.items()},
            {name: column[positions] for name, column in self.times.items()},
        )

    @property
    def first(self) -> str:
        """The stream whose times count where many rows have one hash."""
        return next(iter(self.times))

    def latest(self) -> Integers:
        """The time of each row's latest component, which is the row's own time."""
        columns = list(self.times.values())
        return columns[0] if len(columns) == 1 else np.maximum.reduce(columns)

    def to_table(self) -> pa.Table:
        """As an index slice."""
        columns: dict[str, npt.NDArray[np.generic]] = {"hash": self.hashes}
        columns |= {f"ref {name}": column for name, column in self.references.items()}
        columns |= {f"time {name}": column for name, column in self.times.items()}
        return pa.table({name: as_column(column) for name, column in columns.items()})

    @staticmethod
    def from_table(table: pa.Table, key: Key) -> IndexRows:
        """An index slice as rows; nothing is copied."""
        arrays = {name: as_array(table.column(name)) for name in table.column_names}
        return IndexRows(
            key,
            arrays["hash"].view(np.uint64),
            {n.removeprefix("ref "): a for n, a in arrays.items() if n.startswith("ref ")},
            {n.removeprefix("time "): a for n, a in arrays.items() if n.startswith("time ")},
        )


def sort_rows(
    key: Key, hashes: Hashes, references: dict[StateId, Integers], times: dict[str, Integers]
) -> IndexRows:
    """Rows in any order as sorted rows."""
    return IndexRows(key, hashes, references, times).take(stable_order(hashes))


def merge_rows(parts: Sequence[IndexRows]) -> IndexRows:
    """Sorted parts as one; at least one part is needed, since rows know their columns only from it."""
    first = parts[0]
    if len(parts) == 1:
        return first
    together = IndexRows(
        first.key,
        np.concatenate([part.hashes for part in parts]),
        {n: np.concatenate([part.references[n] for part in parts]) for n in first.references},
        {n: np.concatenate([part.times[n] for part in parts]) for n in first.times},
    )
    # This one merges runs that are sorted already, which is faster than sorting anew.
    return together.take(np.argsort(together.hashes, kind="stable"))


def in_time_order(rows: IndexRows) -> IndexRows:
    """Sorted rows to be searched: where many have one hash, they are in the order of their first time.

    What only probes, or is a result, does without: a hot key may have made any number of such rows.
    """
    moves = time_order_moves(rows.hashes, rows.times[rows.first])
    if moves is None:
        return rows
    to, source = moves

    def moved(columns: dict[str, Integers]) -> dict[str, Integers]:
        # Most rows stay where they are, so a copy and the few others are less than a new order of all.
        found = {name: column.copy() for name, column in columns.items()}
        for name, column in columns.items():
            found[name][to] = column[source]
        return found

    return IndexRows(rows.key, rows.hashes, moved(rows.references), moved(rows.times))
