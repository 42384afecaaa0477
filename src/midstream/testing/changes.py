"""The changes of plan in a run of the simulator: what its manifests tell of them, and what they must tell.

Migrations have promises of their own:

| promise    | what must hold                                                                               |
| ---------- | -------------------------------------------------------------------------------------------- |
| *requests* | a request that was taken is heeded, by the strategy that it names, as soon as no migration   |
|            | is under way, whatever happens in between; without one no migration begins                   |
| *ending*   | a migration that waits for old rows to expire is over when the last of them has              |

A migration by parallel track keeps results back until it ends. So the results of all its epochs count as
those of one: :meth:`Changes.together`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby

from midstream.migration.request import Request
from midstream.state.manifest import Manifest
from midstream.state.migration import Migration
from midstream.testing.expected import Expected
from midstream.testing.workload import Workload


class Changes:
    """The migrations of one run."""

    def __init__(self, workload: Workload, expected: Expected) -> None:
        self._workload = workload
        self._expected = expected
        self._manifests: dict[int, Manifest] = {}

    def note(self, manifest: Manifest) -> None:
        """Take note of what an epoch has committed."""
        self._manifests[manifest.epoch] = manifest

    def due(self, epoch: int) -> Request | None:
        """The request that waits when an epoch begins: the last one, unless an epoch has heeded it."""
        waiting = None
        for number in range(epoch + 1):
            if number and self._under_way(number - 2) is None:
                waiting = None
            waiting = self._workload.requests.get(number, waiting)
        return waiting

    def stale(self, requests: list[str], epoch: int) -> list[str]:
        """Those of the requests in a store that nobody needs after an epoch.

        One that this epoch has heeded stays: the manifest before may yet be gone back to.
        """
        before = self._manifests.get(epoch - 1)
        heeded = before.heeded if before else 0
        return [name for name in requests if int(name.rpartition("/")[2]) <= heeded]

    def unheeded(self, manifest: Manifest) -> str | None:
        """What is wrong with *requests*, if anything is; the manifest before must be known."""
        epoch = manifest.epoch
        begun, plan = 0, str(self._workload.plan)
        if epoch:
            begun, plan = self._manifests[epoch - 1].migrations, self._manifests[epoch - 1].plan
        request = self.due(epoch) if self._under_way(epoch - 1) is None else None
        asked = None if request is None or str(request.plan) == plan else request
        found = _of(manifest) if manifest.migrations > begun else None
        wanted = None if asked is None else (str(asked.plan), asked.strategy, epoch)
        if request is None and epoch and self._under_way(epoch - 1) is None:
            # What was decided with the epoch before is as good as a request.
            decided = self._manifests[epoch - 1].adaptation.wants(epoch)
            wanted = None if decided is None else (decided.best, decided.strategy, epoch)
        got = None if found is None else (found.plan, found.strategy, found.start)
        if wanted == got and manifest.migrations - begun == (wanted is not None):
            return None
        return f"in epoch {epoch} {wanted} was to begin, but {got} did"

    def overdue(self, manifest: Manifest) -> str | None:
        """What is wrong with *ending*, if anything is."""
        migration = manifest.migration
        if migration is None or migration.background:
            return None
        for name in self._workload.query.names:
            times = self._expected.times(name, migration.start - 1)
            if times and not self._expected.has_expired(name, max(times), manifest.epoch):
                return None
        return f"migration {migration.number} waits in epoch {manifest.epoch} for rows that have expired"

    def together(self, epochs: Iterable[int]) -> Iterator[tuple[list[int], bool]]:
        """Epochs whose results count as one, and whether some of these may still be kept back."""
        for start, group in groupby(sorted(epochs), key=self._began):
            found = list(group)
            migration = self._under_way(found[-1])
            yield found, migration is not None and migration.start == start and _tracks(migration)

    def features(self) -> set[str]:
        """What has come up."""
        found: set[str] = set()
        for epoch, manifest in self._manifests.items():
            if manifest.migration is not None and epoch == manifest.migration.start:
                found.add(f"{_manner(manifest.migration)} under way")
            if manifest.adaptation.last is not None and manifest.adaptation.last.epoch == epoch:
                found.add(f"a decision to {manifest.adaptation.last.verdict}")
            if manifest.ended is not None and manifest.ended.start < epoch:
                found.add(f"{_manner(manifest.ended)} to the end")
            if manifest.ended is not None and manifest.ended.strategy == "moving_state":
                found.add("moving state")
            if manifest.migration is not None and self.due(epoch) and manifest.migration.start < epoch:
                found.add("a request that waits")
        return found

    def _began(self, epoch: int) -> int:
        """The first of the epochs with which an epoch counts as one."""
        manifest = self._manifests.get(epoch)
        migration = None if manifest is None else _of(manifest)
        return migration.start if migration is not None and _tracks(migration) else epoch

    def _under_way(self, epoch: int) -> Migration | None:
        """The migration that is under way after an epoch."""
        return self._manifests[epoch].migration if epoch in self._manifests else None


def _of(manifest: Manifest) -> Migration | None:
    return manifest.migration or manifest.ended


def _tracks(migration: Migration) -> bool:
    return migration.strategy == "parallel_track"


def _manner(migration: Migration) -> str:
    if _tracks(migration):
        return "parallel track"
    if migration.background:
        return "hybrid with background work"
    return "hybrid with its plans apart" if migration.apart else "hybrid that waits"
