"""Index rows: what the engine joins. A hash, a reference per input, and a time per stream; never payload."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from midstream.engine.arrays import as_array, as_column
from midstream.engine.hashing import Hashes
from midstream.engine.hot_keys import time_order_moves
from midstream.engine.ordering import stable_order
from midstream.engine.references import Integers
from midstream.plan.layout import Key
from midstream.plan.state_id import StateId

K = TypeVar("K")


@dataclass(frozen=True)
class IndexRows:
    """Joined rows of some inputs of a fragment, sorted by the hash of ``key``.

    Rows that are searched, rather than only probe others, are also :func:`in_time_order`. Any selection of
    such rows, in their order, is so too.
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
            {StateId(n.removeprefix("ref ")): a for n, a in arrays.items() if n.startswith("ref ")},
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

    def moved(columns: dict[K, Integers]) -> dict[K, Integers]:
        # Most rows stay where they are, so a copy and the few others are less than a new order of all.
        copies = {name: column.copy() for name, column in columns.items()}
        for name, column in columns.items():
            copies[name][to] = column[source]
        return copies

    return IndexRows(rows.key, rows.hashes, moved(rows.references), moved(rows.times))
