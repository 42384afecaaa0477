"""Runs of a query whose definition is replaced, compared with DuckDB's batch joins of both definitions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from unittest import mock

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from midstream.inline import InlineJoin
from midstream.plan.tree import Plan
from midstream.protocol.settings import Settings
from midstream.query.query import Query
from midstream.state.manifest import EndedReplacement, Replacement
from midstream.storage.fsck import check as fsck
from midstream.storage.memory_store import MemoryStore
from midstream.testing import assert_same_rows
from midstream.testing.aggregate_oracle import (
    aggregate_results,
    assert_same_windows,
    last_updates,
    results_with_times,
)
from midstream.testing.oracle import matching_rows, outputs
from midstream.testing.reference import Accepted, AcceptRules, ExpectedProgress, accept_epoch, times_of
from midstream.values import Micros

FAR = 2**55
"""After all windows of all tests."""
Epoch = Mapping[str, pa.Table]
Moments = npt.NDArray[np.object_]


@dataclass
class ReplacementRun:
    """A run in which one replacement is asked for at most, and what has come out of it."""

    old: Query
    plan: str | Plan | None
    settings: Settings
    store: MemoryStore = field(default_factory=MemoryStore)
    new: Query | None = None
    path: str = ""
    epochs: list[Epoch] = field(default_factory=list)
    tables: list[pa.Table] = field(default_factory=list)
    new_tables: list[pa.Table] = field(default_factory=list)
    """What comes out by the new definition, if it has another schema."""
    replacement: Replacement | EndedReplacement | None = None
    """As it was last."""
    states: list[tuple[Replacement | EndedReplacement | None, int, int]] = field(default_factory=list)
    """After each epoch, the replacement, and how many tables of each kind there were."""
    _joined: dict[str, _Joined] = field(default_factory=dict)
    """The results of each definition over all epochs so far, once they are asked for."""

    def __post_init__(self) -> None:
        self.join = InlineJoin(self.old, self.plan, settings=self.settings, store=self.store)

    def replace(self, new: Query, strategy: str, plan: str | Plan | None = None, path: str = "") -> None:
        self.join.replace(new, plan, strategy, path=path)
        self.new, self.path = new, path

    def restart(self, query: Query) -> None:
        if self.join.manifest.replacement is not None:
            # Either definition may be given on other terms. As no epoch is run, they are not the last ones.
            later = tuple(replace(each, lateness=Micros(each.lateness + 1)) for each in query.streams)
            other = InlineJoin(replace(query, streams=later), settings=self.settings, store=self.store)
            assert other.query.names == self.join.query.names
        self.join = InlineJoin(query, settings=self.settings, store=self.store)

    def restart_with(self, *, new: bool) -> None:
        """Start again, with the new definition if that is asked for; what is given must have all streams."""
        if self.new is None:
            self.restart(self.old)
        elif self.has_ended or not set(self.new.names) <= set(self.old.names):
            self.restart(self.new)
        else:
            self.restart(self.new if new and self.new.names == self.old.names else self.old)

    def process(self, epoch: Epoch, background_epochs: int | None = None) -> None:
        """Run an epoch; its rows are those of the streams that there are by then."""
        names = {*self.old.names, *(self.new.names if self.new is not None else ())}
        epoch = {name: table for name, table in epoch.items() if name in names}
        self.epochs.append(epoch)
        self._joined.clear()
        table = self.join.run_epoch(epoch, background_epochs=background_epochs)
        manifest = self.join.manifest
        self.replacement = manifest.replacement or manifest.ended_replacement or self.replacement
        (self.new_tables if self.has_ended and self.path else self.tables).append(table)
        if self.join.new_results is not None:
            self.new_tables.append(self.join.new_results)
        self.states.append((self.replacement, len(self.tables), len(self.new_tables)))

    @property
    def live_since(self) -> int | None:
        """The epoch since which the new definition takes part, if it does."""
        return None if self.replacement is None else self.replacement.live_since

    @property
    def has_ended(self) -> bool:
        return isinstance(self.replacement, EndedReplacement)

    def check(self) -> None:
        """What has come out is what the definitions say, each until or after the hand-over."""
        self.check_files()
        self._check(len(self.epochs) - 1)

    def check_files(self) -> None:
        """The checkpoint is whole."""
        assert not fsck(self.store).problems

    def check_each_epoch(self) -> None:
        """After every epoch there was what the definitions say of its rows and earlier ones."""
        for epoch in range(len(self.epochs)):
            self._check(epoch)

    def _check(self, epoch: int) -> None:
        replacement, count, new_count = self.states[epoch]
        tables, new_tables = self.tables[:count], self.new_tables[:new_count]
        if self.new is None or replacement is None or replacement.live_since is None:
            self._compare(self.old, tables, self._of_old.between(None, None, epoch), epoch)
            return
        until = replacement.until
        of_old = self._of_old.between(None, -FAR if until is None else until, epoch)
        of_new = self._of_new.between(until, None, epoch)
        if self.path:
            self._compare(self.new, new_tables, of_new, epoch)
            self._compare(self.old, tables, of_old, epoch)
        else:
            self._compare(self.old, tables, pa.concat_tables([of_old, of_new]), epoch)

    @property
    def _of_old(self) -> _Joined:
        if "old" not in self._joined:
            self._joined["old"] = _Joined(self.old, self._accepted_by_old())
        return self._joined["old"]

    @property
    def _of_new(self) -> _Joined:
        assert self.new is not None
        assert self.replacement is not None
        if "new" not in self._joined:
            self._joined["new"] = _Joined(self.new, self._accepted_by_new(self.new, self.replacement))
        return self._joined["new"]

    def finish(self) -> None:
        """Let all windows leave that are still in state, as if time had come to its end; then check."""
        with mock.patch("midstream.aggregate.next_step.output_watermark", return_value=FAR):
            self.process({})
        self.check()

    def _compare(self, query: Query, tables: list[pa.Table], want: pa.Table, epoch: int) -> None:
        got = pa.concat_tables([want.schema.empty_table(), *tables])
        if query.aggregation is None:
            assert_same_rows(got, want, f"results until epoch {epoch}")
        elif query.aggregation.is_update_mode:
            assert_same_windows(last_updates([got], query), want, query)
        else:
            assert_same_windows(got, want, query)

    def _accepted_by_old(self) -> Accepted:
        accepted = Accepted(progress={name: ExpectedProgress() for name in self.old.names})
        for epoch in self.epochs:
            self._accept(self.old, accepted, epoch)
        return accepted

    def _accept(self, query: Query, accepted: Accepted, epoch: Epoch) -> None:
        rows = {name: table for name, table in epoch.items() if name in query.by_name}
        accept_epoch(query, accepted, rows, AcceptRules(idle_timeout=self.settings.idle_timeout))

    def _accepted_by_new(self, new: Query, replacement: Replacement | EndedReplacement) -> Accepted:
        """Those from before it was live as the old definition has accepted them, others by its own rules."""
        start, live = replacement.start_epoch, replacement.live_since or 0
        before = self._accepted_by_old()
        accepted = Accepted(progress={name: ExpectedProgress() for name in new.names})
        for number, epoch in enumerate(self.epochs):
            if number == live and live > 0:
                marks = before.history[live - 1]
                for name in set(new.names) & set(self.old.names):
                    accepted.progress[name] = replace(marks[name])
            if number >= live:
                self._accept(new, accepted, epoch)
                continue
            added = {n: t for n, t in epoch.items() if n not in self.old.by_name and number >= start}
            self._accept(new, accepted, added)
            accepted.epochs[-1] |= {n: t for n, t in before.epochs[number].items() if n in new.by_name}
        return accepted


class _Joined:
    """The batch join of all rows that a definition accepts, by the epochs that bring its results."""

    def __init__(self, query: Query, accepted: Accepted) -> None:
        self.query = query
        self.tables = accepted.tables(query)
        self.rows = matching_rows(query, self.tables)
        # A result belongs to the epoch of its newest row.
        self.newest = np.full(self.rows.num_rows, -1)
        for name in query.names:
            counts = [epoch[name].num_rows if name in epoch else 0 for epoch in accepted.epochs]
            arrival = np.repeat(np.arange(len(counts)), counts)
            self.newest = np.maximum(self.newest, arrival[self.rows.column(name).to_numpy()])

    def between(self, after: int | None, until: int | None, epoch: int) -> pa.Table:
        """What there is after an epoch, as :func:`results_between` says."""
        rows = self.rows.filter(pa.array(self.newest <= epoch))
        return _between(self.query, self.tables, rows, after, until)


def results_between(
    query: Query, tables: Mapping[str, pa.Table], after: int | None, until: int | None
) -> pa.Table:
    """The results of the batch join after a time and until one, or the windows that begin then."""
    return _between(query, tables, matching_rows(query, tables), after, until)


def _between(
    query: Query, tables: Mapping[str, pa.Table], rows: pa.Table, after: int | None, until: int | None
) -> pa.Table:
    if query.aggregation is not None:
        length = query.aggregation.windows.length
        ends = [None if time is None else time + length for time in (after, until)]
        joined = results_with_times(query, tables, rows)
        return aggregate_results(query, joined, after=ends[0], until=ends[1])
    times = _times(query, tables, rows)
    mask = np.ones(len(times), np.bool_)
    if after is not None:
        mask &= (times > after).astype(np.bool_)
    if until is not None:
        mask &= (times <= until).astype(np.bool_)
    return outputs(query, tables, rows.filter(pa.array(mask)))


def _times(query: Query, tables: Mapping[str, pa.Table], rows: pa.Table) -> Moments:
    """The time of each result: that of its latest component."""
    latest: Moments = np.full(rows.num_rows, -(2**63), object)
    for name in query.names:
        times = np.array([0, *times_of(query, name, tables[name])], object)
        latest = np.maximum(latest, times[1 + rows.column(name).to_numpy()])
    return latest
