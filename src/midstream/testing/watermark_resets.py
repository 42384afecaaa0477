"""An operator of the simulator who sets watermarks back, while drivers are paused or between their lives."""

from __future__ import annotations

import random

from midstream.errors import OptionError
from midstream.runtime.watermark_reset import reset_watermark
from midstream.storage.intents import intent_name
from midstream.storage.lease import Lease
from midstream.storage.manifest_log import newest_manifest
from midstream.testing.faults import FaultStore
from midstream.testing.promises import Promises
from midstream.testing.random_streams import SECOND


class WatermarkResets:
    """Sets watermarks back, and tells the promises what has been set."""

    def __init__(self, store: FaultStore, promises: Promises, rng: random.Random) -> None:
        self._store = store
        self._promises = promises
        self._rng = rng
        self._begun: dict[int, tuple[str, int]] = {}
        """The stream and watermark of each reset that may yet be committed, by its lease."""

    def are_possible(self) -> bool:
        """Whether something is committed, no epoch under way, no state spilled, and nothing replaced.

        Nor may a window of aggregates have left.
        """
        manifest = newest_manifest(self._store.inner)
        if manifest is None or manifest.memory.cuts or manifest.replacement or manifest.handed_over:
            return False
        if manifest.definition["aggregation"] is not None:
            return False
        return intent_name(manifest.epoch + 1) not in self._store.inner.files

    def set_back(self, lease: Lease) -> None:
        """Set the watermark of some stream back to what its rows before it would have made it."""
        manifest = newest_manifest(self._store.inner)
        if manifest is None or manifest.lease >= lease.number or not self.are_possible():
            return  # the lease was taken meanwhile; one of this number may even have been used up
        marks = {name: mark.watermark for name, mark in manifest.streams.items()}
        # More often the one that is furthest: it may have run away.
        furthest = max(marks, key=lambda name: (marks[name] is not None, marks[name] or 0))
        stream = self._rng.choice((*marks, furthest, furthest, furthest))
        before = marks[stream]
        expected = self._promises.definitions.at(manifest.epoch).expected
        latest = None if before is None else expected.latest_before(stream, before)
        if latest is None:
            return
        lateness = expected.queries[manifest.epoch].by_name[stream].lateness
        watermark = latest - lateness + self._rng.choice((0, 0, 3, -3)) * SECOND
        self._begun[lease.number] = (stream, watermark)
        try:
            reset_watermark(self._store, lease, stream, watermark)
        except OptionError:
            self._begun.pop(lease.number, None)  # before rows that are kept, or not before the watermark

    def note(self) -> None:
        """If a reset is committed, tell the promises; called before anything else happens."""
        manifest = newest_manifest(self._store.inner) if self._begun else None
        if manifest is None:
            return
        if manifest.lease in self._begun:
            self._store.faults["watermarks set back"] += 1
            # Whether its driver was told or not: a power cut that undoes it is not simulated.
            self._store.make_durable("manifests")
            self._promises.set_back(manifest.epoch, *self._begun[manifest.lease])
        self._begun = {number: reset for number, reset in self._begun.items() if number > manifest.lease}
