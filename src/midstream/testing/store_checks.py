"""When the simulator checks its promises: after every epoch, after every life, and in the end."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from midstream.state.manifest import Manifest
from midstream.storage.manifest_log import newest_manifest
from midstream.storage.publish_log import is_published, noted_epochs
from midstream.testing.faults import STAGED, Damage, FaultStore
from midstream.testing.promises import Promises
from midstream.testing.store_sink import Reader


class StoreChecks:
    """Checks of a store, and of what its readers have seen."""

    def __init__(self, store: FaultStore, promises: Promises, readers: Sequence[Reader]) -> None:
        self._store = store
        self._promises = promises
        self._readers = readers

    def after_commit(self) -> None:
        """An epoch was committed: other processes, while this one is paused, go on from there."""
        manifest = newest_manifest(self._store.inner)
        if manifest is not None:
            self._promises.migration_promises.add_manifest(manifest)

    def after_epoch(self, manifest: Manifest) -> None:
        """An epoch was committed and published."""
        self._promises.migration_promises.add_manifest(manifest)
        self._check_published(manifest.epoch)
        self._promises.check_manifest(manifest)

    def after_life(self, damage: Damage | None) -> None:
        """A process has ended; damage is repaired before another process sees it."""
        if damage is not None:
            self._store.repair(damage)
            self._promises.forgive(damage.name)
        last = self._promises.check_store(self._store)
        manifest = newest_manifest(self._store.inner)
        deferred = None
        if manifest is not None:
            self._promises.migration_promises.add_manifest(manifest)
            self._promises.check_manifest(manifest)
            self._promises.check_state(self._store.inner, manifest)
            deferred = self._promises.deferred(self._store.inner, manifest)
        published = last < 0 or is_published(noted_epochs(self._store.inner), last)
        self._check_published(last if published else last - 1, deferred if published else None)

    def after_last_epoch(self, manifest: Manifest) -> None:
        """An epoch without faults has ended: nothing that is not used is left."""
        self._promises.migration_promises.add_manifest(manifest)
        self._promises.check_manifest(manifest)
        # Of a sink that the query has left for another one, nobody sweeps what was staged.
        table = self._promises.definitions.now.table
        left = () if table == "results" else (f"{STAGED}/results-",)
        staged = [name for name in self._store.inner.list(STAGED) if not name.startswith(left)]
        self._promises.check_litter(self._store.inner, manifest, staged)
        self._check_published(manifest.epoch, self._promises.deferred(self._store.inner, manifest))

    def _check_published(self, last: int, deferred: pa.Table | None = None) -> None:
        for reader in self._readers:
            self._promises.published.check(reader, last, deferred)
