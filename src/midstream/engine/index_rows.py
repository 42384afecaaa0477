"""Index rows, which the engine joins: a hash, a reference per input and a time per stream, but no payload."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from midstream.engine.arrays import as_array, as_column
from midstream.engine.hashing import Hashes, group_bounds
from midstream.engine.hot_keys import expand_ranges, time_order_permutation
from midstream.engine.ordering import stable_order
from midstream.engine.references import Integers
from midstream.plan.layout import Key
from midstream.plan.state_id import StateId
from midstream.state.slices import Slice

K = TypeVar("K")


@dataclass(frozen=True)
class IndexRows:
    """Joined rows of some inputs of a fragment, sorted by the hash of ``key``.

    Rows that are searched, and do not only probe others, are also :func:`in_time_order`. Any subset of them
    that keeps their order still is.
    """

    key: Key
    hashes: Hashes
    references: dict[StateId, Integers]
    times: dict[str, Integers]
    stored_in: Slice | None = None
    """The slice that the rows are from; None if they are new, or from several."""

    def __len__(self) -> int:
        return len(self.hashes)

    def take(self, positions: npt.NDArray[np.intp] | npt.NDArray[np.bool_]) -> IndexRows:
        """The rows at ``positions``, in that order."""
        return IndexRows(
            self.key,
            self.hashes[positions],
            {name: column[positions] for name, column in self.references.items()},
            {name: column[positions] for name, column in self.times.items()},
            self.stored_in,
        )

    def near(self, run: IndexRows) -> IndexRows:
        """The rows whose hashes are not before the first of a run, nor after its last; nothing is copied."""
        if not len(run):
            return self
        low = int(np.searchsorted(self.hashes, run.hashes[0], side="left"))
        high = int(np.searchsorted(self.hashes, run.hashes[-1], side="right"))
        within = slice(low, high)
        return IndexRows(
            self.key,
            self.hashes[within],
            {name: column[within] for name, column in self.references.items()},
            {name: column[within] for name, column in self.times.items()},
            self.stored_in,
        )

    @property
    def time_order_stream(self) -> str:
        """The stream by whose times rows with a hot key are sorted."""
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
    def from_table(table: pa.Table, key: Key, stored_in: Slice | None = None) -> IndexRows:
        """An index slice as rows; nothing is copied."""
        arrays = dict(zip(table.schema.names, map(as_array, table.columns), strict=True))
        return IndexRows(
            key,
            arrays["hash"].view(np.uint64),
            {StateId(n.removeprefix("ref ")): a for n, a in arrays.items() if n.startswith("ref ")},
            {n.removeprefix("time "): a for n, a in arrays.items() if n.startswith("time ")},
            stored_in,
        )


def sort_rows(
    key: Key, hashes: Hashes, references: dict[StateId, Integers], times: dict[str, Integers]
) -> IndexRows:
    """Index rows from columns in any order."""
    return IndexRows(key, hashes, references, times).take(stable_order(hashes))


def merge_rows(parts: Sequence[IndexRows]) -> IndexRows:
    """Merge sorted parts; at least one is needed, because the columns are taken from it."""
    first = parts[0]
    if len(parts) == 1:
        return first
    concatenated = IndexRows(
        first.key,
        np.concatenate([part.hashes for part in parts]),
        {n: np.concatenate([part.references[n] for part in parts]) for n in first.references},
        {n: np.concatenate([part.times[n] for part in parts]) for n in first.times},
    )
    # This sort merges runs that are sorted already, so it is faster here than ``stable_order``.
    return concatenated.take(np.argsort(concatenated.hashes, kind="stable"))


def in_groups(run: IndexRows, chosen: Sequence[int], groups: int) -> IndexRows:
    """The rows of some groups; of the others nothing is read but what two binary searches need."""
    return in_ranges(run, *group_bounds(chosen, groups))


def in_ranges(run: IndexRows, first: Hashes, last: Hashes) -> IndexRows:
    """The rows in ranges of hashes, in ascending order, that do not overlap."""
    low = np.searchsorted(run.hashes, first, side="left")
    high = np.searchsorted(run.hashes, last, side="right")
    return run.take(expand_ranges(low, high - low))


def in_time_order(rows: IndexRows) -> IndexRows:
    """Sorted rows, those with hot keys also in the order of their first time, so that they can be searched.

    Rows that only probe, and results, need not be: hot keys may produce any number of them.
    """
    moves = time_order_permutation(rows.hashes, rows.times[rows.time_order_stream])
    if moves is None:
        return rows
    targets, sources = moves

    def moved(columns: dict[K, Integers]) -> dict[K, Integers]:
        # Most rows stay where they are, so copying and moving the others is cheaper than reordering all.
        copies = {name: column.copy() for name, column in columns.items()}
        for name, column in columns.items():
            copies[name][targets] = column[sources]
        return copies

    return IndexRows(rows.key, rows.hashes, moved(rows.references), moved(rows.times), rows.stored_in)
