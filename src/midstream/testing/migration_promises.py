"""The changes of plan in a run of the simulator: what its manifests tell of them, and what they must tell.

Migrations have promises of their own:

| promise    | what must hold                                                                               |
| ---------- | -------------------------------------------------------------------------------------------- |
| *requests* | a request that was taken is applied, by the strategy that it names, by the first epoch that  |
|            | is begun after it when no migration is under way; without one no migration begins            |
| *ending*   | a migration that waits for old rows to expire is over when the last of them has              |

A migration by parallel track keeps results back until it ends. So the results of all its epochs count as
those of one: :meth:`Changes.together`.
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
    """The migrations of one run."""

    def __init__(self, query: Query, first: Plan, expected: Expected) -> None:
        self._query = query
        self._first = str(first)
        self._expected = expected
        self._manifests: dict[int, Manifest] = {}
        self._intents: dict[int, Intent] = {}
        self._taken: list[WrittenRequest] = []
        self._doubtful: list[WrittenRequest] = []
        """Requests of which nobody can say whether they were taken."""
        self._applied = 0
        """How many of those that were taken have been applied."""

    def note(self, manifest: Manifest) -> None:
        """Take note of what an epoch has committed."""
        self._manifests[manifest.epoch] = manifest

    def ask(self, request: WrittenRequest, *, taken: bool) -> None:
        """A request was made; if it failed, it may have been taken all the same."""
        (self._taken if taken else self._doubtful).append(request)

    def begin(self, intent: Intent) -> str | None:
        """An epoch is begun: what is wrong with the request that it applies, if anything is."""
        self._intents[intent.epoch] = intent
        waiting = self._taken[self._applied :]
        if self._under_way(intent.epoch - 1) is not None:
            return None if intent.request is None else f"epoch {intent.epoch} applies a request too early"
        allowed: Sequence[WrittenRequest | None] = [*waiting[-1:], *self._doubtful]
        if not waiting:
            allowed = [None, *self._doubtful]
        if intent.request not in allowed:
            wanted = waiting[-1] if waiting else None
            return f"epoch {intent.epoch} is to apply {wanted}, but applies {intent.request}"
        self._applied = len(self._taken)
        return None

    def undo(self, intent: Intent) -> None:
        """An epoch was not begun after all: what it would have applied still waits."""
        if intent.request in self._taken[: self._applied]:
            self._applied -= 1 + self._taken[: self._applied][::-1].index(intent.request)

    def stale(self, requests: list[str], manifest: Manifest) -> list[str]:
        """Those of the requests in a store that nobody needs any more."""
        return [name for name in requests if int(name.rpartition("/")[2]) <= manifest.applied_requests]

    def unheeded(self, manifest: Manifest) -> str | None:
        """What is wrong with *requests*, if anything is; the manifest before must be known."""
        epoch = manifest.epoch
        begun, plan = 0, self._first
        if epoch:
            begun, plan = self._manifests[epoch - 1].migrations, self._manifests[epoch - 1].plan
        request = self._intents[epoch].request
        found = _of(manifest) if manifest.migrations > begun else None
        asked = None if request is None or request.plan == plan else request
        wanted = None if asked is None else (asked.plan, asked.strategy, epoch)
        if request is None and epoch and self._under_way(epoch - 1) is None:
            # What was decided with the epoch before is as good as a request.
            decided = self._manifests[epoch - 1].adaptation.decision_for(epoch)
            wanted = None if decided is None else (decided.best_plan, decided.strategy, epoch)
        got = None if found is None else (found.new_plan, found.strategy, found.start_epoch)
        if wanted == got and manifest.migrations - begun == (wanted is not None):
            return None
        return f"in epoch {epoch} {wanted} was to begin, but {got} did"

    def overdue(self, manifest: Manifest) -> str | None:
        """What is wrong with *ending*, if anything is."""
        migration = manifest.migration
        if migration is None or migration.background:
            return None
        for name in self._query.names:
            times = self._expected.times(name, migration.start_epoch - 1)
            if times and not self._expected.has_expired(name, max(times), manifest.epoch):
                return None
        return f"migration {migration.number} waits in epoch {manifest.epoch} for rows that have expired"

    def together(self, epochs: Iterable[int]) -> Iterator[tuple[list[int], bool]]:
        """Epochs whose results count as one, and whether some of these may still be kept back."""
        for start, group in groupby(sorted(epochs), key=self._began):
            found = list(group)
            migration = self._under_way(found[-1])
            yield found, migration is not None and migration.start_epoch == start and _tracks(migration)

    def features(self) -> set[str]:
        """What has come up."""
        found: set[str] = set()
        for epoch, manifest in self._manifests.items():
            if manifest.migration is not None and epoch == manifest.migration.start_epoch:
                found.add(f"{_strategy_name(manifest.migration)} under way")
            if (
                manifest.adaptation.last_decision is not None
                and manifest.adaptation.last_decision.epoch == epoch
            ):
                found.add(f"a decision to {manifest.adaptation.last_decision.verdict}")
            if manifest.ended_migration is not None and manifest.ended_migration.start_epoch < epoch:
                found.add(f"{_strategy_name(manifest.ended_migration)} to the end")
            if manifest.ended_migration is not None and manifest.ended_migration.strategy == "moving_state":
                found.add("moving state")
            waited = epoch - 1 in self._manifests and self._under_way(epoch - 1) is not None
            if waited and epoch + 1 in self._intents and self._intents[epoch + 1].request is not None:
                found.add("a request that waits")
        return found

    def _began(self, epoch: int) -> int:
        """The first of the epochs with which an epoch counts as one."""
        manifest = self._manifests.get(epoch)
        migration = None if manifest is None else _of(manifest)
        return migration.start_epoch if migration is not None and _tracks(migration) else epoch

    def _under_way(self, epoch: int) -> Migration | None:
        """The migration that is under way after an epoch."""
        return self._manifests[epoch].migration if epoch in self._manifests else None


def _of(manifest: Manifest) -> Migration | None:
    return manifest.migration or manifest.ended_migration


def _tracks(migration: Migration) -> bool:
    return STRATEGIES[migration.strategy].defers_results


def _strategy_name(migration: Migration) -> str:
    if _tracks(migration):
        return "parallel track"
    if migration.background:
        return "hybrid with background work"
    return "hybrid with its plans apart" if migration.isolated else "hybrid that waits"
