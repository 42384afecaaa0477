"""The course of a driver: what is requested of its query while it runs, and where the driver is killed."""

import json
import os
import signal
import threading
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Literal, NamedTuple, Self

from midstream import Join
from midstream.engine.program import Program
from midstream.migration.request import BackgroundChoice
from midstream.runtime.crash_points import crash_hook
from midstream.spark.micro_batch_handler import MicroBatchHandler
from midstream.spark.query import JoinStreamingQuery
from midstream.storage.intents import find_intent
from tests.spark.process_faults import Fault

REPLACEMENT_STRATEGY = "generalized_hybrid"


class Change(NamedTuple):
    """A request for another plan, made in the middle of an epoch, so that the next one applies it."""

    epoch: int
    plan: str
    strategy: str | None
    background: BackgroundChoice = "auto"
    partitions: int | None = None
    """Another number of engine partitions that is requested with it."""


@dataclass(frozen=True, kw_only=True)
class Life:
    """What one driver is started with, what is requested of it, and how it ends."""

    point: str = ""
    """The crash point at which it is killed, if any."""
    phase: str = ""
    """The only phase of a change in which it is killed, if any: see ``phases_of``; "asked": for the last."""
    changes: tuple[Change, ...] = ()
    replaced_in: int | None = None
    """The epoch in the middle of which the new definition is requested, if it is."""
    definition: Literal["old", "new"] = "old"
    faults: tuple[Fault, ...] = ()
    options: dict[str, str | int] = field(default_factory=dict)
    master: str = "local[2]"

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Self:
        given = json.loads(text)
        given["changes"] = tuple(Change(*change) for change in given["changes"])
        given["faults"] = tuple(Fault(*fault) for fault in given["faults"])
        return cls(**given)


def phases_of(driver: MicroBatchHandler) -> set[str]:
    """The phases of a migration, or of a replacement, that the next epoch to be committed is in."""
    manifest, runner = driver.manifest, driver.runner
    intent = find_intent(runner.store, manifest.epoch + 1) or runner.new_intent(0, 1)
    program = driver.coordinator.program(manifest, intent)
    step, replacement = program.migration_step, program.replacement
    live_since = None if replacement is None else replacement.replacement.live_since
    both_boxes = replacement is not None and isinstance(replacement.program, Program)
    phases = {
        "begins": step is not None and step.begins and not step.ends,
        "ends": step is not None and step.ends,
        "goes on": manifest.migration is not None and step is not None and not step.ends,
        "half computed": manifest.migration is not None and bool(manifest.migration.rebuilding),
        "catches up": both_boxes and live_since is None,
        "goes live": both_boxes and live_since == intent.epoch,
        "is live": both_boxes and live_since is not None and live_since < intent.epoch,
        "was replaced": manifest.ended_replacement is not None,
    }
    return {phase for phase, holds in phases.items() if holds}


class DriverCourse:
    """Makes the requests of a life, and kills this process; called at every crash point.

    ``new`` makes the join by the new definition, and ``look`` is called with the query at every crash point.
    """

    def __init__(
        self,
        life: Life,
        new: Callable[[], Join] | None = None,
        look: Callable[[JoinStreamingQuery, str], None] | None = None,
    ) -> None:
        self.life = life
        self.changes = list(life.changes)
        """Those that were not requested yet."""
        self.query: JoinStreamingQuery | None = None
        self._new = new
        self._look = look
        self._started = threading.Event()

    def run(self, start: Callable[[], JoinStreamingQuery]) -> JoinStreamingQuery:
        """Start the query, and wait until it ends."""
        with crash_hook(self):
            self.query = start()
            self._started.set()
            self.query.awaitTermination()
        return self.query

    def __call__(self, point: str) -> None:
        if threading.current_thread() is threading.main_thread():
            # The query is starting, and finishes what its last run left unfinished.
            if not self.life.phase:
                self._die_at(point)
            return
        # Epochs may begin before its start has returned the query.
        self._started.wait()
        assert self.query is not None
        driver = self.query._handler
        if point == "before the step":
            self._request(self.query, driver.manifest.epoch + 1)
        if point == self.life.point and self.life.phase in {"", *phases_of(driver)}:
            self._die_at(point)
        if self._look is not None:
            self._look(self.query, point)

    def _request(self, query: JoinStreamingQuery, epoch: int) -> None:
        for change in [change for change in self.changes if change.epoch == epoch]:
            self.changes.remove(change)
            query.migrate(change.plan, change.strategy, background=change.background)
            if change.partitions is not None:
                query.rescale(change.partitions)
            if self.life.phase == "asked" and not self.changes:
                self._die_at("before the step")
        if self._new is not None and epoch == self.life.replaced_in:
            query.replace(self._new(), REPLACEMENT_STRATEGY)

    def _die_at(self, point: str) -> None:
        if point == self.life.point:
            os.kill(os.getpid(), signal.SIGKILL)
