"""One node, one epoch: the delta rule.

For a node with inputs 1..m, new rows d_i and states S_i as they were before the epoch, the node's new rows
are, for every i, d_i joined with S_j + d_j for j < i and with S_j for j > i. So every combination is
found exactly once: by its newest input, or by the last of them if several are new.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec
import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

from midstream.engine.evaluate import filter_residual
from midstream.engine.hashing import Hashes, hash_key
from midstream.engine.payload import Payload
from midstream.engine.probe import Positions, matches
from midstream.engine.rows import Integers, Rows, merge_rows, sort_rows
from midstream.plan.layout import Key, Node, Probe, StateId, column_name, key_column, representative
from midstream.query.query import Query

State = Callable[[StateId, Key], Sequence[Rows]]
"""The sorted runs of a state by the key they are searched by."""


class WorkDone(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What was done, counted: it does not depend on the machine."""

    probes: int = 0
    candidates: int = 0
    intermediate_rows: int = 0
    comparisons: int = 0
    """Pairs that a nested loop would have compared."""

    def __add__(self, other: WorkDone) -> WorkDone:
        return WorkDone(
            self.probes + other.probes,
            self.candidates + other.candidates,
            self.intermediate_rows + other.intermediate_rows,
            self.comparisons + other.comparisons,
        )


@dataclass
class Joiner:
    """Joins rows of a fragment's inputs in one engine partition."""

    query: Query
    payloads: Mapping[StateId, Payload]
    work: WorkDone = field(default_factory=WorkDone)

    def delta(self, node: Node, deltas: Mapping[StateId, Rows], state: State) -> Rows | None:
        """The new rows of a node, or None if it has none."""
        found: list[Rows] = []
        for i, head in enumerate(node.inputs):
            earlier = frozenset(node.inputs[:i])
            rows: Rows | None = deltas.get(head)
            for probe in node.probes[i]:
                if rows is None:
                    break
                runs = list(state(probe.input, probe.key))
                if probe.input in earlier and probe.input in deltas:
                    runs.append(self.arrange(deltas[probe.input], probe.key))
                rows = self._extend(rows, probe, runs)
            if rows is not None:
                found.append(rows)
        if not found:
            return None
        return merge_rows([self.arrange(rows, found[0].key) for rows in found])

    def arrange(self, rows: Rows, key: Key) -> Rows:
        """The rows, sorted by another key."""
        if rows.key == key:
            return rows
        columns = [self.key_values(rows, c) for c in key]
        return sort_rows(key, hash_key(columns, len(rows)), rows.references, rows.times)

    def key_values(self, rows: Rows, key_class: int) -> pa.ChunkedArray:
        """The rows' values of a key class."""
        stream = representative(self.query, rows.times, key_class)
        return self.fetch(rows, stream, key_column(stream, key_class))

    def fetch(self, rows: Rows, stream: str, column: str) -> pa.ChunkedArray:
        """A payload column of one of the rows' streams."""
        owner = next(name for name in rows.references if stream in name.split(","))
        return self.payloads[owner].fetch(column, rows.references[owner])

    def _extend(self, rows: Rows, probe: Probe, runs: Iterable[Rows]) -> Rows | None:
        rows = self.arrange(rows, probe.key)
        found: list[Rows] = []
        for run in runs:
            candidates = 0
            for left, right in matches(rows.hashes, run.hashes):
                candidates += len(left)
                joined = self._check(rows, run, left, right, probe)
                if len(joined):
                    found.append(joined)
            self.work += WorkDone(len(rows), candidates, 0, len(rows) * len(run))
        if not found:
            return None
        self.work += WorkDone(intermediate_rows=sum(map(len, found)))
        return merge_rows(found)

    def _check(self, rows: Rows, run: Rows, left: Positions, right: Positions, probe: Probe) -> Rows:
        """Keep the candidates that are within the windows, equal by value, and pass the residuals.

        The windows come first: they are cheapest, and a row of the state that has expired never passes
        them, so the payload of such a row is never asked for.
        """
        for mine, my_times in rows.times.items():
            for other, other_times in run.times.items():
                bound = self.query.windows.bound(mine, other)
                if bound is not None:
                    near = _distance(my_times[left], other_times[right]) <= np.uint64(bound)
                    left, right = left[near], right[near]
        for key_class in probe.verify:
            if len(left):
                same = self._same(rows.take(left), run.take(right), key_class)
                left, right = left[same], right[same]
        joined = _combine(rows.take(left), run.take(right))
        for index in probe.residuals:
            if len(joined):
                joined = self._filter(joined, index)
        return joined

    def _same(self, rows: Rows, others: Rows, key_class: int) -> npt.NDArray[np.bool_]:
        """Whether the values of a class are equal, by Polars, which compares NaN and -0.0 as Spark does."""
        mine = pl.from_arrow(self.key_values(rows, key_class))
        theirs = pl.from_arrow(self.key_values(others, key_class))
        same: npt.NDArray[np.bool_] = pl.Series(mine == theirs).to_numpy()
        return same

    def _filter(self, rows: Rows, index: int) -> Rows:
        residual = self.query.residuals[index]
        columns = {column_name(r): self.fetch(rows, r.stream, column_name(r)) for r in residual.columns}
        return rows.take(filter_residual(residual, columns).to_numpy())


def _distance(a: Integers, b: Integers) -> Hashes:
    """How far times are apart; unsigned, because times at both ends of 64 bits are further than 63 hold."""
    return np.maximum(a, b).view(np.uint64) - np.minimum(a, b).view(np.uint64)


def _combine(rows: Rows, others: Rows) -> Rows:
    """Rows side by side."""
    references = {**rows.references, **others.references}
    return Rows(rows.key, rows.hashes, references, {**rows.times, **others.times})
