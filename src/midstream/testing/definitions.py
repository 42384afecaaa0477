"""The definitions of a simulated run, one after the other, and which results of each count.

While one replaces another, both have results: the old one those up to the hand-over time, the new one those
after it; of aggregates, the windows that begin by then. All is known when the epoch is committed in which
the new definition takes part first.

- *hand-over*: no result that is after the hand-over time has left before; it is as late as the guide says,
  and no later.
- *replacements*: a request that was taken is applied once, by the first epoch that is begun after it when
  nothing else changes; and no definition comes that nobody has asked for.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from midstream.errors import OptionError, QueryError
from midstream.protocol.intent import Intent
from midstream.protocol.settings import Settings, definition_of
from midstream.query.query import Query
from midstream.query.window import Windows
from midstream.state.manifest import EndedReplacement, Manifest, Replacement
from midstream.state.manifest import OutputTableName as Table
from midstream.testing.aggregate_promises import AggregatePromises
from midstream.testing.broken_promise import BrokenPromiseError, check_promise
from midstream.testing.expected import Expected
from midstream.testing.possible_terms import widest
from midstream.testing.reference import AcceptRules, ExpectedProgress
from midstream.testing.workload import Workload


@dataclass(frozen=True)
class Asked:
    """A definition, as it may be asked for at one time or another."""

    query: Query
    other_terms: tuple[Query, ...]

    @property
    def widest(self) -> Query:
        """The definition with windows as wide as it ever has them."""
        return widest((self.query, *self.other_terms))


@dataclass(eq=False)
class Definition:
    """A definition that a run has had, and what is expected of it."""

    asked: Asked
    expected: Expected
    table: Table
    """Where its results go."""
    aggregates: AggregatePromises | None = None
    number: int = 0
    """The number of the replacement that it came by; 0 for that which the query began with."""
    live_since: int = 0
    """The first epoch that it takes part in."""
    alone_since: int | None = 0
    """The first epoch that has no other one; None if it has not begun."""
    after: int | None = None
    """Results until then are those of the one before."""
    until: int | None = None
    """Results after then are those of the next one; None if there is none."""
    until_since: int = 0
    """The first epoch of which that holds: before it, a watermark may have been set back."""

    def takes_part(self, epoch: int) -> bool:
        """Whether it has, or might have, results in an epoch."""
        return self.live_since <= epoch < len(self.expected.tables["results"])

    def results(self, epoch: int) -> pa.Table:
        """Its results of an epoch that count, with all columns that its states keep."""
        times = self.expected.times[epoch]
        count: npt.NDArray[np.bool_] = np.ones(len(times), np.bool_)
        if self.after is not None:
            count &= (times > self.after).astype(np.bool_)
        if self.until is not None and epoch >= self.until_since:
            count &= (times <= self.until).astype(np.bool_)
        return self.expected.tables["results"][epoch].filter(pa.array(count))


@dataclass(eq=False)
class _Request:
    asked: Asked
    definition: dict[str, Any]
    path: str
    taken: bool = False
    """Whether the driver has confirmed it. Until then, or if it fails, it may be applied or not."""
    applied_by: int | None = None


@dataclass(frozen=True)
class _Begun:
    rules: AcceptRules
    without_batch: bool


@dataclass(eq=False)
class Definitions:
    """The definitions of one run."""

    workload: Workload
    all: list[Definition] = field(default_factory=list)
    _requests: list[_Request] = field(default_factory=list)
    _begun: dict[int, _Begun] = field(default_factory=dict)

    def __post_init__(self) -> None:
        first = Asked(self.workload.query, self.workload.other_terms)
        self.all.append(
            self._with_aggregates(Definition(first, Expected(first.widest, self.workload.epochs), "results"))
        )

    @staticmethod
    def _with_aggregates(one: Definition) -> Definition:
        if one.asked.query.aggregation is None:
            return one
        return replace(one, aggregates=AggregatePromises(one.asked.widest, one.expected))

    def at(self, epoch: int) -> Definition:
        """The definition of an epoch, or the old one of two."""
        since = max(epoch, 0)
        return [one for one in self.all if one.alone_since is not None and one.alone_since <= since][-1]

    @property
    def now(self) -> Definition:
        """The definition that the run has now, or the old one of two."""
        return [one for one in self.all if one.alone_since is not None][-1]

    def of(self, table: Table, epochs: Sequence[int]) -> list[Definition]:
        """The definitions that may have results of some epochs in a table."""
        return [one for one in self.all if one.table == table and any(map(one.takes_part, epochs))]

    def begin(self, epoch: int, rules: AcceptRules, query: Query, *, without_batch: bool) -> None:
        """An epoch is about to run."""
        self._begun[epoch] = _Begun(rules, without_batch)
        self.at(epoch - 1).expected.begin(epoch, rules, query, without_batch=without_batch)

    def note(self, manifest: Manifest) -> None:
        """An epoch is committed: what there is of a replacement in it is known from now on."""
        step = manifest.replacement or manifest.ended_replacement
        if step is None or step.plan_only or step.live_since is None:
            return
        if step.number > self.all[-1].number:
            self._add(step, manifest)
        new = self.all[-1]
        for epoch in range(len(new.expected.queries), manifest.epoch + 1):
            begun = self._begun[epoch]
            new.expected.begin(epoch, begun.rules, new.asked.query, without_batch=begun.without_batch)
        if isinstance(step, EndedReplacement):
            new.alone_since = manifest.epoch

    def _add(self, step: Replacement | EndedReplacement, manifest: Manifest) -> None:
        assert isinstance(step, Replacement), "a definition takes part before the old one has gone"
        assert step.live_since is not None, "it takes part"
        old, asked = self.at(manifest.epoch), self.asked_for(step.successor.definition)
        if asked is None:
            raise BrokenPromiseError(
                "replacements", f"nobody has asked for the definition in epoch {manifest.epoch}"
            )
        self._check_until(old, asked, step, step.live_since)
        old.until = step.until if step.until is not None else -(2**63)
        old.until_since = step.live_since
        new = Definition(
            asked,
            old.expected.succeeded_by(asked.widest, asked.query, step.live_since),
            "successor" if step.path else old.table,
            number=step.number,
            live_since=step.live_since,
            alone_since=None,
            after=step.until,
        )
        self.all.append(self._with_aggregates(new))
        for one in (old, self.all[-1]):
            if one.aggregates is not None:
                one.aggregates.begins = (one.after, one.until)

    def _check_until(self, old: Definition, asked: Asked, step: Replacement, live_since: int) -> None:
        marks = old.expected.progress(live_since - 1)
        latest = max((mark.latest for mark in marks.values() if mark.latest is not None), default=None)
        if latest is None or step.until is None:
            check_promise(
                "hand-over", latest == step.until, f"at {step.until}, though the latest row is at {latest}"
            )
            return
        check_promise(
            "hand-over", step.until >= latest, f"at {step.until}, before the latest row at {latest}"
        )
        windows = old.expected.queries[live_since - 1].windows
        changes = any(query.windows != windows for query in old.expected.queries[:live_since])
        if not changes and old.asked.query.equalities == asked.query.equalities:
            # No row of use can have expired, or been left out for its key, otherwise.
            want = max([latest, *_complete_after(windows, asked.query, marks, step.history)])
            check_promise("hand-over", step.until == want, f"at {step.until} instead of {want}")

    def asked_for(self, definition: dict[str, Any]) -> Asked | None:
        """The definition as it was asked for, if it was."""
        return next((r.asked for r in reversed(self._requests) if r.definition == definition), None)

    @contextmanager
    def requesting(
        self, asked: Asked, settings: Settings, path: str, *, others_paused: bool
    ) -> Iterator[None]:
        """For the time in which a driver makes a request, which may be paused meanwhile, or fail."""
        request = _Request(asked, definition_of(asked.query, settings), path)
        self._requests.append(request)
        try:
            yield
        except (OptionError, QueryError):
            self._requests.remove(request)
            raise
        request.taken = not others_paused

    def check_request(self, intent: Intent, before: Manifest | None, query: Query) -> str | None:
        """How *replacements* is broken by the intent of an epoch that is begun, or None.

        A request may be dropped if the query, on the terms of the epoch, has other outputs than those that
        it was to go on with.
        """
        waiting = [request for request in self._requests if request.applied_by is None]
        given = intent.replacement
        if given is not None and given.definition:
            fitting = [request for request in waiting if request.definition == given.definition]
            if not fitting:
                return f"epoch {intent.epoch} begins with a definition that nobody waits for"
            # If it may be several, then one that was taken.
            max(fitting, key=lambda request: request.taken).applied_by = intent.epoch
            return None
        is_changing = before is None or before.migration is not None or before.replacement is not None
        taken = [request for request in waiting if request.taken]
        plan = intent.request or intent.waiting or given
        if not taken or is_changing or plan is not None:
            return None
        if not taken[-1].path and not taken[-1].asked.query.output_schema.equals(query.output_schema):
            taken[-1].applied_by = intent.epoch
            return None
        return f"epoch {intent.epoch} does not begin with the definition that was asked for"

    def features(self) -> set[str]:
        """What has happened of replacements; a test checks that the seeds together have all of it."""
        features = set[str]()
        for old, new in pairwise(self.all):
            features.add("two definitions")
            features |= {"another definition alone"} if new.alone_since is not None else set()
            features |= {"results that go elsewhere"} if old.table != new.table else set()
            aggregated = [one.aggregates is not None for one in (old, new)]
            features |= {"aggregates that are added or dropped"} if aggregated[0] != aggregated[1] else set()
            features |= {"aggregates of two definitions"} if all(aggregated) else set()
            same = old.asked.query.equalities == new.asked.query.equalities
            features |= set() if same else {"a definition with other keys"}
        return features

    def undo(self, intent: Intent) -> None:
        """An intent was replaced before its epoch ran: the request in it still waits."""
        for request in self._requests:
            if request.applied_by == intent.epoch:
                request.applied_by = None


def _complete_after(
    windows: Windows, new: Query, marks: Mapping[str, ExpectedProgress], history: Sequence[str]
) -> Iterator[int]:
    """For each stream, the time after which results have only rows of it that the new definition gets."""
    for name, mark in marks.items():
        others = [other for other in marks if other != name]
        reach = [new.windows.width(name, other) for other in others]
        if mark.latest is None or None in reach:
            continue
        complete_from: int | None = mark.latest + 1
        if name in history:
            kept = [
                None
                if (watermark := marks[other].watermark) is None
                or (width := windows.width(name, other)) is None
                else watermark - width
                for other in others
            ]
            complete_from = None if None in kept else min(k for k in kept if k is not None)
        if complete_from is not None:
            yield complete_from - 1 + max(width for width in reach if width is not None)
