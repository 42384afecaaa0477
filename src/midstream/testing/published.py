"""The promises of the simulator about what is published: *prefix* and *batches*, of every definition."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import pyarrow as pa

from midstream.testing.aggregate_promises import Missing
from midstream.testing.broken_promise import BrokenPromiseError, check_promise, failures_break
from midstream.testing.compare import assert_same_rows, difference
from midstream.testing.definitions import Definition, Definitions
from midstream.testing.expected import late_rows_of
from midstream.testing.migration_promises import MigrationPromises
from midstream.testing.store_sink import Reader, StoreSink, read_rows

_ALWAYS = 2**63 - 1
Files = Mapping[int, Mapping[str, pa.Buffer]]
"""What is published, by epoch and name."""


class PublishedPromises:
    """What readers see in a run, and its batches."""

    def __init__(self, definitions: Definitions, migration_promises: MigrationPromises) -> None:
        self.highest = -1
        """The last epoch whose commit will last."""
        self._definitions = definitions
        self._migrations = migration_promises
        self._batches: dict[tuple[str, int], pa.Table] = {}
        self._checked: dict[tuple[str, int], Files] = {}
        """Files that were found right, so that they are compared once."""

    def check_batch(self, epoch: int, sink: StoreSink) -> None:
        """*batches*: a function that is called again for an epoch gets the same rows."""
        queries = self._definitions.at(epoch - 1).expected.queries
        if epoch not in range(len(queries)):
            return  # a driver that was fenced has come to an epoch that no other has begun
        if len(self._definitions.all) > 1 and not sink.staged:
            return  # another sink has them, perhaps
        nothing = queries[epoch].output_schema.empty_table()
        rows = pa.concat_tables(sink.staged or [nothing])
        earlier = self._batches.setdefault((sink.table, epoch), rows)
        with failures_break("batches"):
            assert_same_rows(rows, earlier, f"batch {epoch} when it came again")

    def check(self, sink: Reader, last: int, deferred: pa.Table | None = None) -> None:
        """*prefix*: all is published up to ``last``; of a later commit, a part may be.

        Results that are still deferred after ``last`` are in ``deferred``, if they are known.
        """
        files = sink.files()
        epochs = sorted({*files, *range(last + 1)})
        for epoch in epochs:
            early = epoch > max(last, self.highest)
            check_promise("prefix", not early, f"{sink.table} of epoch {epoch} are there before its commit")
        results = sink.table != "late"
        of_table = self._definitions.of(sink.table, epochs) if results else []
        if any(one.aggregates is not None for one in of_table):
            for one in of_table:
                self._check_aggregates(one, files, last, [epoch for epoch in epochs if epoch <= last])
            return
        groups = self._migrations.group_epochs(epochs) if results else _each(epochs)
        for group, missing in groups:
            published = {epoch: files[epoch] for epoch in group if epoch in files}
            whole = group[-1] <= last and missing == "nothing"
            if whole and self._checked.get((sink.table, group[-1])) == published:
                continue
            more = deferred if missing == "deferred" and group[-1] == last else None
            whole, is_known = whole or more is not None, whole
            if sink.table == "late":
                self._check_late(group[-1], published, whole=whole)
            else:
                self._check_results(
                    self._definitions.of(sink.table, group), group, published, whole=whole, more=more
                )
            if is_known:
                self._checked[sink.table, group[-1]] = published

    def _check_aggregates(self, one: Definition, files: Files, last: int, epochs: Iterable[int]) -> None:
        assert one.aggregates is not None, "all definitions of a table have the same columns"
        manifest = self._migrations.manifest(last)
        emitted = None if manifest is None else manifest.emitted
        step = None if manifest is None else manifest.replacement
        if step is not None and step.number == one.number:
            emitted = step.successor.emitted
        elif one is not self._definitions.at(last):
            emitted = _ALWAYS
        with failures_break("prefix"):
            one.aggregates.check(files, last, self._migrations.group_epochs(epochs), emitted)

    def _check_late(self, epoch: int, files: Files, *, whole: bool) -> None:
        want = self._definitions.at(epoch).expected.tables["late"][epoch]
        rows = [late_rows_of(read_rows(file)) for named in files.values() for file in named.values()]
        _compare(pa.concat_tables([want.slice(0, 0), *rows]), want, f"late of epoch {epoch}", whole=whole)

    def _check_results(
        self,
        definitions: Sequence[Definition],
        epochs: list[int],
        files: Files,
        *,
        whole: bool,
        more: pa.Table | None,
    ) -> None:
        """Compare the files of some epochs, and ``more`` rows, with what is expected of them.

        Results of epochs with different outputs are compared by those that all of them have.
        """
        what = f"results of epoch {' and '.join(map(str, epochs))}"
        parts = [(epoch, read_rows(file)) for epoch, named in files.items() for file in named.values()]
        if len(definitions) > 1:
            self._compare_two(definitions, epochs, parts, what, whole=whole, more=more)
            return
        try:
            rows, wanted = [], []
            for one in definitions:
                common = one.expected.common_outputs([epoch for epoch in epochs if one.takes_part(epoch)])
                wanted = [one.results(epoch).select(common) for epoch in epochs if one.takes_part(epoch)]
                rows = [one.expected.named_as_kept(epoch, part).select(common) for epoch, part in parts]
                rows += [] if more is None else [more.select(common)]
        except (AssertionError, pa.ArrowInvalid) as error:
            raise BrokenPromiseError("prefix", str(error)) from error
        if not definitions:
            # A definition that catches up writes files without rows.
            nothing = not any(part.num_rows for _, part in parts)
            check_promise("prefix", nothing, f"{what} are there, which no definition has")
            return
        want = pa.concat_tables(wanted)
        _compare(pa.concat_tables([want.slice(0, 0), *rows]), want, what, whole=whole)

    @staticmethod
    def _compare_two(
        definitions: Sequence[Definition],
        epochs: list[int],
        parts: Sequence[tuple[int, pa.Table]],
        what: str,
        *,
        whole: bool,
        more: pa.Table | None,
    ) -> None:
        """Compare results of two definitions, which have the same columns while both run.

        If there were other outputs in some of the epochs, their number is compared.
        """
        rows, wanted = [part for _, part in parts], []
        for one in definitions:
            wanted += [_published(one, e, one.results(e)) for e in epochs if one.takes_part(e)]
        if more is not None:
            rows.append(_published(definitions[-1], epochs[-1], more))
        if len({tuple(table.schema.names) for table in (*rows, *wanted)}) > 1:
            rows, wanted = ([_counted(table) for table in tables] for tables in (rows, wanted))
        want = pa.concat_tables(wanted)
        _compare(pa.concat_tables([want.slice(0, 0), *rows]), want, what, whole=whole)


def _published(one: Definition, epoch: int, kept: pa.Table) -> pa.Table:
    """Results as they are published in an epoch, of those with all columns that the states keep."""
    return one.expected.queries[epoch].select_outputs(kept)


def _counted(table: pa.Table) -> pa.Table:
    return pa.table({"row": pa.array([True] * table.num_rows, pa.bool_())})


def _compare(got: pa.Table, want: pa.Table, what: str, *, whole: bool) -> None:
    try:
        if whole:
            assert_same_rows(got, want, what)
            return
        surplus, _ = difference(got, want)
    except (AssertionError, pa.ArrowInvalid) as error:
        raise BrokenPromiseError("prefix", str(error)) from error
    check_promise("prefix", not surplus, f"{what} have {surplus.total()} rows that they must not have")


def _each(epochs: Iterable[int]) -> Iterator[tuple[list[int], Missing]]:
    """Each epoch by itself."""
    return (([epoch], "nothing") for epoch in epochs)
