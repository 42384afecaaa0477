"""The promises of the simulator about migrations.

| promise    | what must hold                                                                               |
| ---------- | -------------------------------------------------------------------------------------------- |
| *requests* | a request that was taken is applied once, by the strategy that it names, by the first epoch  |
|            | that is begun after it when no migration is under way, and no state is spilled that it       |
|            | changes, unless a later one has taken its place; without one no migration begins             |
| *decisions*| what was decided is carried out only if the plan has not been changed since, nor is asked to |
| *ending*   | a migration that waits for old rows to expire is over when the last of them has              |

A migration by parallel track defers results until it ends. So the results of all its epochs are compared as
those of one: :meth:`MigrationPromises.group_epochs`. So are those of epochs while state is spilled: what
groups owe is made later.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import groupby

from midstream.migration.request import StoredMigrationRequest
from midstream.migration.strategies import AUTO, SITE_SWITCH, STRATEGIES
from midstream.plan.tree import Plan
from midstream.protocol.intent import Intent
from midstream.protocol.query_terms import QueryTerms, committed_terms
from midstream.query.query import Query
from midstream.state.manifest import Manifest
from midstream.state.migration import Migration
from midstream.testing.aggregate_promises import Missing
from midstream.testing.definitions import Definitions


@dataclass(eq=False)
class _MadeRequest:
    """A request that a driver has made, or is about to make."""

    request: StoredMigrationRequest
    taken: bool = False
    """Whether the driver has confirmed it. Until then, or if it fails, it may be applied or not."""
    ended: bool = False
    """Whether the driver has confirmed it, or failed."""
    applied_by: int | None = None
    """The epoch that has applied it, or a later one in its place."""


class MigrationPromises:
    """The requests and migrations of one run, and checks of their promises."""

    def __init__(self, query: Query, first: Plan, definitions: Definitions) -> None:
        self._query = query
        self._first = str(first)
        self._definitions = definitions
        self._manifests: dict[int, Manifest] = {}
        self._intents: dict[int, Intent] = {}
        self._requests: list[_MadeRequest] = []
        """The requests that may be applied, or have been, in the order in which they were begun."""
        self._settled: set[int] = set()
        """Epochs after which nothing is owed although groups are spilled."""

    def add_manifest(self, manifest: Manifest) -> None:
        """An epoch was committed."""
        self._manifests[manifest.epoch] = manifest
        self._definitions.note(manifest)

    @contextmanager
    def requesting(self, request: StoredMigrationRequest, *, others_paused: bool) -> Iterator[None]:
        """For the time in which a driver makes a request, which may be paused meanwhile, or fail.

        Another driver that was paused may wake up just in time to begin the next epoch, without the request.
        """
        made = _MadeRequest(request)
        self._requests.append(made)
        try:
            yield
            made.taken = not others_paused
            if made.taken:
                # It takes the place of all that came before it.
                self._requests = [
                    r for r in self._requests if r.taken or not r.ended or r.applied_by is not None
                ]
        finally:
            made.ended = True

    def settle(self, epoch: int) -> None:
        """After an epoch nothing is owed, although groups are spilled."""
        self._settled.add(epoch)

    def begin(self, intent: Intent) -> str | None:
        """An epoch is begun; returns what is wrong with the request that it applies, or None."""
        self._intents[intent.epoch] = intent
        if self._under_way(intent.epoch - 1) is not None or self.is_replacing(intent.epoch - 1):
            return None if intent.request is None else f"epoch {intent.epoch} applies a request too early"
        if intent.waiting is not None and intent.request is None:
            # It waits for spilled groups that it would change.
            spilled = bool(self._manifests[intent.epoch - 1].memory.cuts)
            return None if spilled else f"epoch {intent.epoch} lets a request wait for nothing"
        waiting = [made for made in self._requests if made.applied_by is None]
        taken = [made for made in waiting if made.taken]
        if intent.request is None and not taken:
            return None
        # If it may be several, then one that was taken.
        applied = [*(made for made in waiting if not made.taken), *taken[-1:]]
        applied = [made for made in applied if made.request == intent.request][-1:]
        if not applied:
            expected = taken[-1].request if taken else None
            return f"epoch {intent.epoch} should apply {expected}, but applies {intent.request}"
        for made in (*applied, *taken):
            made.applied_by = intent.epoch
        return None

    def check_verdict(self, intent: Intent) -> str | None:
        """How *decisions* is broken by the intent of an epoch that is begun, or None."""
        if intent.verdict is None:
            return None
        decided_from, before = (self._manifests[e] for e in (intent.verdict.epoch, intent.epoch - 1))
        if intent.request is None and decided_from.migrations == before.migrations:
            return None
        return f"epoch {intent.epoch} carries out what was decided before the plan was changed"

    def undo(self, intent: Intent) -> None:
        """An intent was replaced before its epoch ran: the request in it still waits."""
        for made in self._requests:
            if made.applied_by == intent.epoch:
                made.applied_by = None

    def stale(self, requests: list[str], manifest: Manifest) -> list[str]:
        """The requests in a store that have been applied, and should have been deleted."""
        applied = {
            "requests/": manifest.applied_requests,
            "requests/partitions-": manifest.applied_rescales,
            "requests/replacement-": manifest.applied_replacements,
        }
        return [name for name in requests if int(name[-6:]) <= applied[name[:-6]]]

    def check_requests(self, manifest: Manifest) -> str | None:
        """How *requests* is broken, or None; the manifest before must have been added."""
        epoch = manifest.epoch
        begun, plan = 0, self._first
        if epoch:
            begun, plan = self._manifests[epoch - 1].migrations, self._manifests[epoch - 1].plan
        request = self._intents[epoch].request
        started = _migration_in(manifest) if manifest.migrations > begun else None
        expected = None
        if request is not None and request.plan != plan:
            chosen = (
                started.strategy if started is not None and request.strategy == AUTO else request.strategy
            )
            expected = (request.plan, chosen, epoch)
        if request is None and epoch and self._under_way(epoch - 1) is None:
            # Without a request, what was decided begins a migration.
            verdict = self._intents[epoch].verdict
            decision = None if verdict is None else verdict.migration
            expected = None if decision is None else (decision.best_plan, decision.strategy, epoch)
        got = None if started is None else (started.new_plan, started.strategy, started.start_epoch)
        if expected == got and manifest.migrations - begun == (expected is not None):
            return None
        return f"in epoch {epoch} {expected} should begin, but {got} did"

    def check_ending(self, manifest: Manifest) -> str | None:
        """How *ending* is broken, or None."""
        migration = manifest.migration
        # While rows are owed, others stay for them, and their migration with them.
        if migration is None or migration.background or manifest.memory.cuts:
            return None
        expected = self._definitions.at(manifest.epoch).expected
        for name in self._query.names:
            for arrival, time in expected.awaited(name, migration.start_epoch - 1):
                if not expected.has_expired(name, arrival, time, manifest.epoch):
                    return None
        return f"migration {migration.number} waits in epoch {manifest.epoch} for rows that have expired"

    def group_epochs(self, epochs: Iterable[int]) -> Iterator[tuple[list[int], Missing]]:
        """Groups of epochs whose results count as one, and what may still be missing of them."""
        for _, members in groupby(sorted(epochs), key=self._first_of_group):
            group = list(members)
            migration = self._under_way(group[-1])
            missing: Missing = "deferred" if migration is not None and _defers(migration) else "nothing"
            yield group, "owed" if self.may_owe(group[-1]) else missing

    def manifest(self, epoch: int) -> Manifest | None:
        """What was committed by an epoch, if that is known."""
        return self._manifests.get(epoch)

    def is_replacing(self, epoch: int) -> bool:
        """Whether another box runs beside that of the query after an epoch."""
        return epoch in self._manifests and self._manifests[epoch].replacement is not None

    def committed_terms(self, epoch: int) -> QueryTerms:
        """The terms of an epoch that is committed."""
        return committed_terms(self._manifests[epoch])

    def is_under_way(self, epoch: int) -> bool:
        """Whether a migration is under way after an epoch."""
        return self._under_way(epoch) is not None

    def features(self) -> set[str]:
        """Which kinds of migrations, decisions and requests the run had."""
        features: set[str] = set()
        for epoch, manifest in self._manifests.items():
            features |= {f"groups {change.action}" for change in manifest.memory.changes}
            # Cuts at random have no such reasons.
            features |= {"a spilled group"} if manifest.memory.cuts else set()
            if manifest.migration is not None and epoch == manifest.migration.start_epoch:
                features.add(f"{_strategy_name(manifest.migration)} under way")
            verdict = self._intents[epoch].verdict if epoch in self._intents else None
            if verdict is not None:
                decision = verdict.adaptation.last_decision
                features |= {f"a decision to {decision.verdict}"} if decision is not None else set()
                features |= {"a late verdict"} if verdict.epoch < epoch - 1 else set()
            if manifest.migration is not None and manifest.migration.borders:
                features.add("a border in two locations")
            if manifest.migration is not None and manifest.migration.moving:
                features.add("a state that is moved in portions")
            if manifest.ended_migration is not None and manifest.ended_migration.start_epoch < epoch:
                features.add(f"{_strategy_name(manifest.ended_migration)} to the end")
            if manifest.ended_migration is not None and manifest.ended_migration.strategy == "moving_state":
                features.add("moving state")
            request = self._intents[epoch].request if epoch in self._intents else None
            if request is not None and (request.strategy == AUTO or request.isolated is None):
                features.add("a request that leaves a choice")
            waited = epoch - 1 in self._manifests and self._under_way(epoch - 1) is not None
            if waited and epoch + 1 in self._intents and self._intents[epoch + 1].request is not None:
                features.add("a request that waits")
        return features

    def _first_of_group(self, epoch: int) -> int:
        """The first epoch of the group that an epoch is in."""
        manifest = self._manifests.get(epoch)
        migration = None if manifest is None else _migration_in(manifest)
        starts = [epoch]
        if migration is not None and _defers(migration) and migration.start_epoch < epoch:
            starts.append(self._first_of_group(migration.start_epoch))
        if self._is_spilled(epoch - 1):
            # This epoch may make what groups owed after the one before.
            starts.append(self._first_of_group(epoch - 1))
        return min(starts)

    def may_owe(self, epoch: int) -> bool:
        """Whether spilled groups may owe results after an epoch."""
        return self._is_spilled(epoch) and epoch not in self._settled

    def _is_spilled(self, epoch: int) -> bool:
        """Whether groups are spilled after an epoch."""
        manifest = self._manifests.get(epoch)
        if manifest is None:
            return False
        step = manifest.replacement
        return bool(manifest.memory.cuts or (step is not None and step.successor.memory.cuts))

    def _under_way(self, epoch: int) -> Migration | None:
        """The migration that is under way after an epoch."""
        return self._manifests[epoch].migration if epoch in self._manifests else None


def _migration_in(manifest: Manifest) -> Migration | None:
    return manifest.migration or manifest.ended_migration


def _defers(migration: Migration) -> bool:
    return migration.strategy != SITE_SWITCH and STRATEGIES[migration.strategy].defers_results


def _strategy_name(migration: Migration) -> str:
    if migration.strategy == SITE_SWITCH:
        return "switch of sites"
    if _defers(migration):
        return "parallel track"
    if migration.background:
        return "hybrid with background work"
    return "hybrid with isolated plans" if migration.isolated else "hybrid that waits"
