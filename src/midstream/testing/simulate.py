"""The simulator: the production core in one process, over a store that fails, under a seed.

A seed draws a workload (:mod:`midstream.testing.workload`) and faults (:mod:`midstream.testing.faults`). The
query is started again and again, each time until it is stopped or dies, until all epochs are through. What
must hold meanwhile and in the end is in :mod:`midstream.testing.promises`.

    life 1   epoch 0, epoch 1, dies while it publishes -- power cut -- check everything
    life 2   finishes publishing, epoch 2, no space left ------------- check everything
             a bit flips
    life 3   refuses the damaged slice ------------------------------- repair it, check everything
    life 4   epoch 3, ...
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import pyarrow as pa

from midstream.errors import CheckpointError
from midstream.inline import InlineJoin
from midstream.migration.request import Request
from midstream.storage.crash import POINTS, crash_hook
from midstream.storage.ledger import PUBLISHED
from midstream.storage.manifests import newest_manifest
from midstream.storage.memory import MemoryStore
from midstream.storage.slices import FOLDER as SLICES
from midstream.testing.compare import assert_same_rows
from midstream.testing.faults import STAGED, Damage, FaultStore, SimulatedCrash
from midstream.testing.promises import BrokenPromiseError, Promises, Written, hold
from midstream.testing.sink import StoreSink
from midstream.testing.workload import draw_workload, features_of, vary


@dataclass
class Outcome:
    """What happened under a seed."""

    seed: int
    workload: str
    lives: int = 0
    results: int = 0
    late: int = 0
    replays: int = 0
    refused: int = 0
    """How often damage was refused."""
    faults: Counter[str] = field(default_factory=Counter)
    points: set[str] = field(default_factory=set)
    """The crash points that it came to."""
    features: set[str] = field(default_factory=set)
    """What its workload has."""

    def __str__(self) -> str:
        faults = ", ".join(f"{count} {kind}" for kind, count in sorted(self.faults.items())) or "no faults"
        return (
            f"seed {self.seed}: {self.workload}; {self.results} results, {self.late} late rows, "
            f"{self.lives} lives, {self.replays} epochs run again; {faults}, {self.refused} refused"
        )


def simulate(seed: int) -> Outcome:
    """Run one seed; an error names the promise that was broken."""
    return _Simulation(seed).run()


def never_reached(outcomes: Sequence[Outcome]) -> set[str]:
    """Crash points that no simulation came to."""
    return set(POINTS) - {point for outcome in outcomes for point in outcome.points}


class _Simulation:
    def __init__(self, seed: int) -> None:
        chance = random.Random(seed)  # noqa: S311  # chance that repeats is the point
        self.chance = chance
        self.workload = draw_workload(chance, seed)
        self.store = FaultStore(
            chance,
            budget=chance.choice((0, 3, 6, 12)),
            error_rate=chance.choice((0.0, 0.003, 0.01)),
            death_rate=chance.choice((0.0, 0.003, 0.01)),
            late_rate=chance.choice((0.0, 0.1)),
        )
        self.crash_rate = chance.choice((0.0, 0.01, 0.04))
        self.rot_rate = chance.choice((0.0, 0.2, 0.5))
        self.stop_rate = chance.choice((0.0, 0.1, 0.3))
        self.most_lives = self.store.budget + len(self.workload.epochs) + 1
        self.promises = Promises(self.workload)
        self.sinks = [StoreSink(self.store)]
        if self.workload.keeps_late:
            self.sinks.append(StoreSink(self.store, "late"))
        self.number = 0
        self.in_step = False
        """The epoch that runs now, and whether it is in its step."""
        self.asked: set[int] = set()
        """The epochs before which a request was made and taken."""
        self.outcome = Outcome(seed, str(self.workload))

    def run(self) -> Outcome:
        with _other_errors_are_broken_promises():
            while not self._live():
                hold("liveness", self.outcome.lives < self.most_lives, f"{self.most_lives} lives did not do")
            self._check_end()
            self._check_variation()
        self.outcome.results = sum(table.num_rows for table in self.promises.expected.tables["results"])
        self.outcome.late = sum(table.num_rows for table in self.promises.expected.tables["late"])
        self.outcome.replays = self.promises.replays
        self.outcome.faults = self.store.faults
        self.outcome.features = features_of(self.workload)
        if any(fate.idle for fates in self.promises.expected.accepted.history for fate in fates.values()):
            self.outcome.features.add("an idle stream")
        self.outcome.features |= self.promises.changes.features()
        return self.outcome

    def _live(self) -> bool:
        """One life of the process, and a look at what it leaves behind; True if all epochs are through."""
        self.outcome.lives += 1
        damage = self.store.rot() if self.store.strikes(self.rot_rate) else None
        lost_answers = self.store.faults["lost answers"]
        done = False
        try:
            with crash_hook(self._reach):
                done = self._run_epochs()
        except SimulatedCrash:
            if self.chance.random() < 0.5:
                self.store.lose_power()
        except OSError as error:
            if "simulated" not in str(error):
                raise
        except CheckpointError:
            if damage is not None:
                self.outcome.refused += 1
            elif self.store.faults["lost answers"] == lost_answers:
                raise
        if self.in_step:
            self._end_step(whole=False)
        self._check_life(damage)
        return done

    def _run_epochs(self) -> bool:
        query = self._open()
        self.promises.confirm(query.manifest.epoch)
        while query.manifest.epoch + 1 < len(self.workload.epochs):
            self.number = query.manifest.epoch + 1
            self._ask(query)
            query.epoch(self.workload.epochs[self.number], pace=self.workload.pace)
            self.promises.confirm(query.manifest.epoch)
            self.promises.changes.note(query.manifest)
            self._check_published(query.manifest.epoch)
            self.promises.check_manifest(query.manifest)
            if self.chance.random() < self.stop_rate:
                return False
        return True

    def _ask(self, query: InlineJoin) -> None:
        """Ask for another plan, once, if it is time to."""
        if self.number in self.workload.requests and self.number not in self.asked:
            _migrate(query, self.workload.requests[self.number])
            self.asked.add(self.number)

    def _open(self) -> InlineJoin:
        return InlineJoin(
            self.workload.query,
            self.workload.plan,
            settings=self.workload.settings,
            store=self.store,
            sink=self.sinks[0],
            late_sink=self.sinks[1] if self.workload.keeps_late else None,
        )

    def _reach(self, point: str) -> None:
        self.outcome.points.add(point)
        if point == "before the step":
            self.store.written.clear()
            self.in_step = True
        if point == "after the step":
            self._end_step(whole=True)
        if self.store.strikes(self.crash_rate):
            self.store.faults["crashes"] += 1
            raise SimulatedCrash(point)

    def _end_step(self, *, whole: bool) -> None:
        self.in_step = False
        self.promises.check_replay(self.number, _step_files(self.store.written), whole=whole)

    def _check_life(self, damage: Damage | None) -> None:
        if damage is not None:
            self.store.repair(damage)
            self.promises.forgive(damage.name)
        last = self.promises.check_store(self.store.inner)
        manifest = newest_manifest(self.store.inner)
        waiting = None
        if manifest is not None:
            self.promises.changes.note(manifest)
            self.promises.check_manifest(manifest)
            self.promises.check_state(self.store.inner, manifest)
            waiting = self.promises.waiting(self.store.inner, manifest)
        noted = last < 0 or f"{PUBLISHED}/{last:012d}" in self.store.inner.files
        self._check_published(last if noted else last - 1, waiting if noted else None)

    def _check_published(self, last: int, waiting: pa.Table | None = None) -> None:
        for sink in self.sinks:
            self.promises.check_published(sink, last, waiting)

    def _check_end(self) -> None:
        """Once more without faults, for an epoch without rows: it must clear away all that is left."""
        self.store.calm()
        query = self._open()
        query.epoch({}, pace=self.workload.pace)
        manifest = query.manifest
        self.promises.changes.note(manifest)
        self.promises.check_manifest(manifest)
        self.promises.check_litter(self.store.inner, manifest, self.store.inner.list(STAGED))
        self._check_published(manifest.epoch, self.promises.waiting(self.store.inner, manifest))

    def _check_variation(self) -> None:
        """The same rows under another plan, in other partitions and epochs."""
        accepted = self.promises.expected.accepted.tables(self.workload.query)
        other = vary(self.workload, accepted, self.chance)
        query = InlineJoin(other.query, other.plan, settings=other.settings, store=MemoryStore())
        got = pa.concat_tables([query.epoch(epoch) for epoch in other.epochs])
        late = sum(mark.late for mark in query.manifest.streams.values())
        hold("metamorphic", late == 0, f"{late} rows are late although they come in order")
        want = pa.concat_tables(self.promises.expected.tables["results"])
        try:
            assert_same_rows(got, want, f"results under {other}")
        except AssertionError as error:
            raise BrokenPromiseError("metamorphic", str(error)) from error


def _migrate(query: InlineJoin, request: Request) -> None:
    query.migrate(request.plan, request.strategy, background=request.background, apart=request.apart)


def _step_files(written: Written) -> Written:
    """What a step wrote: slices, and staged files without the part of their names that is never the same."""
    named = [(name if name.startswith(SLICES) else name.rpartition("-")[0], data) for name, data in written]
    return [(name, data) for name, data in named if name.startswith((SLICES, STAGED))]


@contextmanager
def _other_errors_are_broken_promises() -> Iterator[None]:
    try:
        yield
    except BrokenPromiseError:
        raise
    except Exception as error:
        raise BrokenPromiseError("errors", f"{type(error).__name__}: {error}") from error
