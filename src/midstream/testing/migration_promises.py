"""The promises of the simulator about migrations.

| promise    | what must hold                                                                               |
| ---------- | -------------------------------------------------------------------------------------------- |
| *requests* | a request that was taken is applied, by the strategy that it names, by the first epoch that  |
|            | is begun after it when no migration is under way; without one no migration begins            |
| *ending*   | a migration that waits for old rows to expire is over when the last of them has              |

A migration by parallel track defers results until it ends. So the results of all its epochs are compared as
those of one: :meth:`MigrationPromises.group_epochs`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

from midstream.migration.request import WrittenRequest
from midstream.migration.strategies import STRATEGIES
from midstream.plan.tree import Plan
from midstream.protocol.intent import Intent
from midstream.query.query import Query
from midstream.state.manifest import Manifest
from midstream.state.migration import Migration
from midstream.testing.expected import Expected


class MigrationPromises:
    """The requests and migrations of one run, and checks of their promises."""

    def __init__(self, query: Query, first: Plan, expected: Expected) -> None:
        self._query = query
        self._first = str(first)
        self._expected = expected
        self._manifests: dict[int, Manifest] = {}
        self._intents: dict[int, Intent] = {}
        self._taken: list[WrittenRequest] = []
        self._doubtful: list[WrittenRequest] = []
        """Requests that failed, and may or may not have been taken."""
        self._applied = 0
        """How many of those that were taken have been applied."""

    def add_manifest(self, manifest: Manifest) -> None:
        """An epoch was committed."""
        self._manifests[manifest.epoch] = manifest

    def add_request(self, request: WrittenRequest, *, taken: bool) -> None:
        """A request was made; one that failed may have been taken nevertheless."""
        (self._taken if taken else self._doubtful).append(request)

    def begin(self, intent: Intent) -> str | None:
        """An epoch is begun; returns what is wrong with the request that it applies, or None."""
        self._intents[intent.epoch] = intent
        waiting = self._taken[self._applied :]
        if self._under_way(intent.epoch - 1) is not None:
            return None if intent.request is None else f"epoch {intent.epoch} applies a request too early"
        allowed: Sequence[WrittenRequest | None] = [*waiting[-1:], *self._doubtful]
        if not waiting:
            allowed = [None, *self._doubtful]
        if intent.request not in allowed:
            expected = waiting[-1] if waiting else None
            return f"epoch {intent.epoch} should apply {expected}, but applies {intent.request}"
        self._applied = len(self._taken)
        return None

    def undo(self, intent: Intent) -> None:
        """An intent was replaced before its epoch ran: the request in it still waits."""
        if intent.request in self._taken[: self._applied]:
            self._applied -= 1 + self._taken[: self._applied][::-1].index(intent.request)

    def stale(self, requests: list[str], manifest: Manifest) -> list[str]:
        """The requests in a store that have been applied, and should have been deleted."""
        return [name for name in requests if int(name.rpartition("/")[2]) <= manifest.applied_requests]

    def check_requests(self, manifest: Manifest) -> str | None:
        """How *requests* is broken, or None; the manifest before must have been added."""
        epoch = manifest.epoch
        begun, plan = 0, self._first
        if epoch:
            begun, plan = self._manifests[epoch - 1].migrations, self._manifests[epoch - 1].plan
        request = self._intents[epoch].request
        started = _migration_in(manifest) if manifest.migrations > begun else None
        changes_plan = request is not None and request.plan != plan
        expected = (request.plan, request.strategy, epoch) if request is not None and changes_plan else None
        if request is None and epoch and self._under_way(epoch - 1) is None:
            # Without a request, a decision of the epoch before begins a migration.
            decision = self._manifests[epoch - 1].adaptation.decision_for(epoch)
            expected = None if decision is None else (decision.best_plan, decision.strategy, epoch)
        got = None if started is None else (started.new_plan, started.strategy, started.start_epoch)
        if expected == got and manifest.migrations - begun == (expected is not None):
            return None
        return f"in epoch {epoch} {expected} should begin, but {got} did"

    def check_ending(self, manifest: Manifest) -> str | None:
        """How *ending* is broken, or None."""
        migration = manifest.migration
        if migration is None or migration.background:
            return None
        for name in self._query.names:
            for arrival, time in self._expected.arrivals(name, migration.start_epoch - 1):
                if not self._expected.has_expired(name, arrival, time, manifest.epoch):
                    return None
        return f"migration {migration.number} waits in epoch {manifest.epoch} for rows that have expired"

    def group_epochs(self, epochs: Iterable[int]) -> Iterator[tuple[list[int], bool]]:
        """Groups of epochs whose results count as one, and whether some may still be deferred."""
        for start, members in groupby(sorted(epochs), key=self._first_of_group):
            group = list(members)
            migration = self._under_way(group[-1])
            yield group, migration is not None and migration.start_epoch == start and _defers(migration)

    def is_under_way(self, epoch: int) -> bool:
        """Whether a migration is under way after an epoch."""
        return self._under_way(epoch) is not None

    def features(self) -> set[str]:
        """Which kinds of migrations, decisions and requests the run had."""
        features: set[str] = set()
        for epoch, manifest in self._manifests.items():
            if manifest.migration is not None and epoch == manifest.migration.start_epoch:
                features.add(f"{_strategy_name(manifest.migration)} under way")
            if (
                manifest.adaptation.last_decision is not None
                and manifest.adaptation.last_decision.epoch == epoch
            ):
                features.add(f"a decision to {manifest.adaptation.last_decision.verdict}")
            if manifest.ended_migration is not None and manifest.ended_migration.start_epoch < epoch:
                features.add(f"{_strategy_name(manifest.ended_migration)} to the end")
            if manifest.ended_migration is not None and manifest.ended_migration.strategy == "moving_state":
                features.add("moving state")
            waited = epoch - 1 in self._manifests and self._under_way(epoch - 1) is not None
            if waited and epoch + 1 in self._intents and self._intents[epoch + 1].request is not None:
                features.add("a request that waits")
        return features

    def _first_of_group(self, epoch: int) -> int:
        """The first epoch of the group that an epoch is in."""
        manifest = self._manifests.get(epoch)
        migration = None if manifest is None else _migration_in(manifest)
        return migration.start_epoch if migration is not None and _defers(migration) else epoch

    def _under_way(self, epoch: int) -> Migration | None:
        """The migration that is under way after an epoch."""
        return self._manifests[epoch].migration if epoch in self._manifests else None


def _migration_in(manifest: Manifest) -> Migration | None:
    return manifest.migration or manifest.ended_migration


def _defers(migration: Migration) -> bool:
    return STRATEGIES[migration.strategy].defers_results


def _strategy_name(migration: Migration) -> str:
    if _defers(migration):
        return "parallel track"
    if migration.background:
        return "hybrid with background work"
    return "hybrid with isolated plans" if migration.isolated else "hybrid that waits"
