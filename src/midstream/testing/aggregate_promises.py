"""The promises of the simulator about aggregates: *prefix* of what is published, by DuckDB over the results.

- In append mode, after every commit the windows are published that end by the output watermark of its epoch,
  as they are over the results of all epochs so far: what is owed or deferred belongs to later windows.
- In update mode, the windows and groups are published that an epoch has results of, as they then are. Epochs
  that may make results of each other count as one; of these the last update of a group is compared.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import pyarrow as pa

from midstream.query.query import Query
from midstream.testing.aggregate_oracle import (
    aggregate_results,
    aggregation_of,
    assert_same_windows,
    last_updates,
    only_groups_of,
)
from midstream.testing.expected import Expected
from midstream.testing.migration_promises import Missing
from midstream.testing.store_sink import read_rows

_NEVER = -(2**63)
Files = Mapping[int, Mapping[str, pa.Buffer]]
"""What is published, by epoch and name."""


class AggregatePromises:
    """What is published of a query with aggregates."""

    def __init__(self, query: Query, expected: Expected) -> None:
        self._query = query
        self._expected = expected
        self._updates = aggregation_of(query).updates
        self._checked: tuple[int, int] = (-1, 0)
        """The last epoch up to which all was found right, and how many files there were."""

    def check(
        self, files: Files, last: int, groups: Iterable[tuple[list[int], Missing]], emitted: int | None
    ) -> None:
        """Fail unless what is published up to an epoch is what should be.

        ``emitted`` is the output watermark of that epoch.
        """
        found = {epoch: named for epoch, named in files.items() if epoch <= last}
        count = sum(map(len, found.values()))
        # The first commit may be undone by a power cut after it was checked.
        if last < 0 or self._checked == (last, count):
            return
        if self._updates:
            for group, missing in groups:
                if group[-1] <= last:
                    self._check_updates(found, group, missing)
        else:
            until = _NEVER if emitted is None else emitted
            want = aggregate_results(self._query, self._results(range(last + 1)), until=until)
            assert_same_windows(self._rows(found, range(last + 1)), want, self._query)
        self._checked = (last, count)

    def _check_updates(self, files: Files, epochs: list[int], missing: Missing) -> None:
        for epoch in epochs:
            got = self._rows(files, [epoch])
            once = last_updates([got], self._query).num_rows == got.num_rows
            assert once, f"a group must come once in epoch {epoch}"
        updates = last_updates([self._rows(files, [epoch]) for epoch in epochs], self._query)
        of_all = aggregate_results(self._query, self._results(range(epochs[-1] + 1)))
        changed = aggregate_results(self._query, self._results(epochs))
        if missing == "nothing":
            assert_same_windows(updates, only_groups_of(of_all, changed, self._query), self._query)
            return
        known = only_groups_of(updates, of_all, self._query)
        assert known.num_rows == updates.num_rows, "a group must have results"

    def check_variation(self, got: list[pa.Table], emitted: int | None) -> None:
        """Fail unless another run of the same rows gave the same, as far as its output watermark went."""
        results = self._results(range(len(self._expected.queries)))
        if self._updates:
            assert_same_windows(
                last_updates(got, self._query), aggregate_results(self._query, results), self._query
            )
            return
        until = _NEVER if emitted is None else emitted
        want = aggregate_results(self._query, results, until=until)
        assert_same_windows(pa.concat_tables(got), want, self._query)

    def _results(self, epochs: Iterable[int]) -> pa.Table:
        made = self._expected.tables["results"]
        return pa.concat_tables([made[epoch] for epoch in epochs])

    def _rows(self, files: Files, epochs: Iterable[int]) -> pa.Table:
        empty = self._query.output_schema.empty_table()
        named = (files.get(epoch, {}) for epoch in epochs)
        return pa.concat_tables(
            [empty, *(read_rows(file) for of_epoch in named for file in of_epoch.values())]
        )
