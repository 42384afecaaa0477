"""Runs of four streams that die at crash points and are started again, for migrations and replacements."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Literal

from midstream.errors import FencedError
from midstream.query.build import build_query
from midstream.query.query import Query
from midstream.runtime.crash_points import crash_hook
from midstream.storage.manifest_log import newest_manifest
from midstream.testing import Shape, stream
from midstream.testing.faults import FaultStore, SimulatedCrash
from midstream.testing.random_streams import SECOND
from midstream.values import Micros

NAMES = "abcd"


def query_of(shape: Shape, window: int, *predicates: str) -> Query:
    """A join of the four streams, within a window in seconds."""
    streams = [stream(name, shape) for name in NAMES]
    items = [f"{name}.id" for name in NAMES]
    return build_query(streams, predicates, default_window=Micros(window * SECOND), select=items)


class CrashRun(ABC):
    """A query on a store, which is started again as often as it dies."""

    def __init__(self, store: FaultStore) -> None:
        self.store = store
        self.asked = False
        """Whether a change was asked for: once, so that it must not be forgotten from then on."""

    def go(self, hook: Callable[[str], None] = lambda _point: None) -> int:
        """Run all epochs; gives how often it died."""
        deaths = 0
        while True:
            try:
                with crash_hook(hook):
                    self._live()
                return deaths
            except (SimulatedCrash, FencedError):
                deaths += 1

    @abstractmethod
    def _live(self) -> None:
        """Run until all epochs are committed."""


class DeathInEveryEpoch:
    """Dies at a point, once in every epoch after a change was asked for."""

    def __init__(self, run: CrashRun, point: str, power: Literal["process", "machine"]) -> None:
        self.epochs: set[int] = set()
        """What was committed when it died."""
        self._run = run
        self._point = point
        self._power = power

    def __call__(self, here: str) -> None:
        if here != self._point or not self._run.asked:
            return
        # The last one that is committed; the epoch that runs is this one or the next.
        manifest = newest_manifest(self._run.store.inner)
        epoch = -1 if manifest is None else manifest.epoch
        if epoch not in self.epochs:
            self.epochs.add(epoch)
            if self._power == "machine":
                self._run.store.lose_power()
            raise SimulatedCrash(self._point)
