"""The promises of the simulator about aggregates: *prefix* of what is published, by DuckDB over the results.

- In append mode, after every commit the windows are published that end by the output watermark of its epoch,
  as they are over the results of all epochs so far: what is owed or deferred belongs to later windows.
- In update mode, the windows and groups are published that an epoch has results of, as they then are. Epochs
  that may make results of each other count as one; of these the last update of a group is compared.
- Of a definition that replaces another one, or is replaced, the windows that begin in its time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from operator import is_
from typing import Literal

import pyarrow as pa
import pyarrow.compute as pc

from midstream.engine.results import TIME
from midstream.query.query import Query
from midstream.testing.aggregate_oracle import (
    aggregate_results,
    aggregation_of,
    assert_same_windows,
    last_updates,
    only_groups_of,
)
from midstream.testing.expected import Expected
from midstream.testing.store_sink import read_rows

Missing = Literal["nothing", "deferred", "owed"]
"""What may be missing of results: those that a migration defers, or that spilled groups owe."""
_NEVER = -(2**63)
Files = Mapping[int, Mapping[str, pa.Buffer]]
"""What is published, by epoch and name."""


@dataclass(frozen=True)
class _Group:
    """All that the comparison of the updates of some epochs depends on."""

    epochs: list[int]
    missing: Missing
    files: list[Mapping[str, pa.Buffer]]
    made: list[pa.Table]
    """The results of all epochs up to the last one."""
    begins: tuple[int | None, int | None]

    def is_same(self, other: _Group) -> bool:
        """Whether the comparison has the same outcome: tables must be the same objects."""
        mine, others = ((g.epochs, g.missing, g.files, g.begins, len(g.made)) for g in (self, other))
        return mine == others and all(map(is_, self.made, other.made))


class AggregatePromises:
    """What is published of a query with aggregates."""

    def __init__(self, query: Query, expected: Expected) -> None:
        self._query = query
        self._expected = expected
        self._is_update_mode = aggregation_of(query).is_update_mode
        self.begins: tuple[int | None, int | None] = (None, None)
        """After which time its windows begin, and until which."""
        self._checked: tuple[int, int] = (-1, 0)
        """The last epoch up to which all was found right, and how many files there were."""
        self._right: dict[int, _Group] = {}
        """By the last epoch of a group of epochs, what was found right of it, so that it is compared once."""

    def check(
        self, files: Files, last: int, groups: Iterable[tuple[list[int], Missing]], emitted: int | None
    ) -> None:
        """Fail unless what is published up to an epoch is what should be.

        ``emitted`` is the output watermark of that epoch; once all windows have left, there is no end to it.
        """
        found = {epoch: named for epoch, named in files.items() if epoch <= last}
        count = sum(map(len, found.values()))
        # The first commit may be undone by a power cut after it was checked.
        if last < 0 or self._checked == (last, count):
            return
        if self._is_update_mode:
            for group, missing in groups:
                if group[-1] <= last:
                    self._check_updates(found, group, missing)
        else:
            want = self._windows(range(last + 1), until=_NEVER if emitted is None else emitted)
            assert_same_windows(self._rows(found, range(last + 1)), want, self._query)
        self._checked = (last, count)

    def _check_updates(self, files: Files, epochs: list[int], missing: Missing) -> None:
        made = self._expected.tables["results"][: epochs[-1] + 1]
        group = _Group(epochs, missing, [files.get(epoch, {}) for epoch in epochs], made, self.begins)
        right = self._right.get(epochs[-1])
        if right is None or not right.is_same(group):
            self._compare_updates(files, epochs, missing)
            self._right[epochs[-1]] = group

    def _compare_updates(self, files: Files, epochs: list[int], missing: Missing) -> None:
        got = {epoch: self._rows(files, [epoch]) for epoch in epochs}
        for epoch, table in got.items():
            once = last_updates([table], self._query).num_rows == table.num_rows
            assert once, f"a group must come once in epoch {epoch}"
        updates = last_updates(list(got.values()), self._query)
        if missing == "nothing":
            changed = self._windows(range(epochs[-1] + 1), since=epochs[0])
            assert_same_windows(updates, changed, self._query)
            return
        known = only_groups_of(updates, self._windows(range(epochs[-1] + 1)), self._query)
        assert known.num_rows == updates.num_rows, "a group must have results"

    def check_variation(self, got: list[pa.Table], emitted: int | None) -> None:
        """Fail unless another run of the same rows gave the same, as far as its output watermark went."""
        results = self._results(range(len(self._expected.queries)))
        if self._is_update_mode:
            assert_same_windows(
                last_updates(got, self._query), aggregate_results(self._query, results), self._query
            )
            return
        until = _NEVER if emitted is None else emitted
        want = aggregate_results(self._query, results, until=until)
        assert_same_windows(pa.concat_tables(got), want, self._query)

    def _windows(self, epochs: Iterable[int], until: int | None = None, since: int = 0) -> pa.Table:
        """The windows over the results of some epochs, those that are its own and that end by a time.

        Of their groups, those that have a result since some epoch.
        """
        length = aggregation_of(self._query).windows.length
        after, last = (None if begin is None else begin + length for begin in self.begins)
        ends = [end for end in (until, last) if end is not None]
        results, before = self._results(epochs), self._results(range(since)).num_rows
        until = min(ends, default=None)
        return aggregate_results(self._query, results, after=after, until=until, since=before)

    def _results(self, epochs: Iterable[int]) -> pa.Table:
        made = self._expected.tables["results"]
        nothing = self._query.joined_schema.append(pa.field(TIME, pa.int64())).empty_table()
        return pa.concat_tables([nothing, *(made[epoch] for epoch in epochs if epoch < len(made))])

    def _rows(self, files: Files, epochs: Iterable[int]) -> pa.Table:
        empty = self._query.output_schema.empty_table()
        named = (files.get(epoch, {}) for epoch in epochs)
        rows = pa.concat_tables(
            [empty, *(read_rows(file) for of_epoch in named for file in of_epoch.values())]
        )
        if self.begins == (None, None):
            return rows
        windows = rows.column(aggregation_of(self._query).window_position).combine_chunks()
        times = windows.field("start").cast(pa.int64())
        after, until = self.begins
        if after is not None:
            rows = rows.filter(pc.greater(times, after))
            times = times.filter(pc.greater(times, after))
        return rows if until is None else rows.filter(pc.less_equal(times, until))
