"""The simulator: the production code in one process, over a store with faults, all drawn from a seed.

A seed draws a workload (:mod:`midstream.testing.workload`) and faults (:mod:`midstream.testing.faults`). The
query is started again and again, each time until it is stopped or dies, until all epochs are committed. What
must hold meanwhile and in the end is in :mod:`midstream.testing.promises`.

    life 1   epoch 0, epoch 1, dies while it publishes -- power cut -- check everything
    life 2   finishes publishing, epoch 2, no space left ------------- check everything
             a bit flips
    life 3   refuses the damaged slice ------------------------------- repair it, check everything
    life 4   epoch 3, is paused ... life 5 takes over, epochs 3 and 4 ... life 4 wakes, and must do no harm

A process may be paused at every crash point and before every call of the store. Another driver, or a garbage
collection, then runs in between, in the same thread, so that a seed always does the same. Between lives
options change, requests arrive, and clocks are wrong; readers move files away at any time.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import pyarrow as pa

from midstream.errors import CheckpointError, FencedError
from midstream.inline import InlineJoin
from midstream.migration.request import write_request
from midstream.protocol.intent import decode_intent
from midstream.query.query import Query
from midstream.runtime.crash_points import crash_hook
from midstream.storage.fsck import collect_garbage
from midstream.storage.intents import intent_name
from midstream.storage.lease import Lease, seize_lease
from midstream.storage.manifest_log import newest_manifest
from midstream.storage.memory import MemoryStore
from midstream.storage.publish_log import is_published, noted_epochs
from midstream.testing.compare import assert_same_rows
from midstream.testing.faults import MAX_REFUSED_CALLS, STAGED, Damage, FaultStore, SimulatedCrash
from midstream.testing.outcome import Outcome
from midstream.testing.promises import BrokenPromiseError, Promises, hold, step_files
from midstream.testing.random_streams import SECOND, START
from midstream.testing.store_sink import Reader, StoreSink
from midstream.testing.workload import changed_settings, draw_workload, features_of, vary

_MAX_PAUSED = 2
"""How many processes may be paused at a time."""
_MAX_CALLS = 100_000
"""A seed makes a few hundred calls of the store; one that makes many more would never end."""
_RATE_IN_CALLS = 0.1
"""How likely events are before a call of the store, compared with a crash point."""


def simulate(seed: int) -> Outcome:
    """Run one seed; an error names the promise that was broken."""
    return _Simulation(seed).run()


@dataclass
class _Life:
    """One process: a driver of the query, or a garbage collection."""

    lease: int = 0
    epoch: int = 0
    in_step: bool = False
    """Whether it is in the step of its epoch."""
    results: StoreSink | None = None
    pausable: bool = True


class _Simulation:
    def __init__(self, seed: int) -> None:
        chance = random.Random(seed)  # noqa: S311  # it must be reproducible
        self.chance = chance
        self.workload = draw_workload(chance, seed)
        self.store = FaultStore(
            chance,
            budget=chance.choice((0, 3, 6, 12, 24)),
            error_rate=chance.choice((0.0, 0.003, 0.01)),
            death_rate=chance.choice((0.0, 0.003, 0.01)),
            late_rate=chance.choice((0.0, 0.1)),
            full_rate=chance.choice((0.0, 0.0, 0.01)),
            on_call=self._before_call,
        )
        self.crash_rate = chance.choice((0.0, 0.01, 0.04))
        self.rot_rate = chance.choice((0.0, 0.2, 0.5))
        self.stop_rate = chance.choice((0.0, 0.1, 0.3))
        self.pause_rate = chance.choice((0.0, 0.03, 0.1, 0.3))
        self.change_rate = chance.choice((0.0, 0.5))
        self.move_rate = chance.choice((0.0, 0.1, 0.5))
        self.max_lives = (1 + MAX_REFUSED_CALLS) * self.store.budget + len(self.workload.epochs) + 1
        self.promises = Promises(self.workload)
        self.readers = [Reader(self.store, "results")]
        if self.workload.keeps_late:
            self.readers.append(Reader(self.store, "late"))
        self.life = _Life()
        self.asked: dict[int, list[Query]] = {}
        """For each epoch, the query as the drivers have asked it that have come to the epoch."""
        self.paused = 0
        """How many processes are paused now."""
        self.calls = 0
        self.requested: set[int] = set()
        """The epochs before which a request was made."""
        self.outcome = Outcome(seed, str(self.workload))

    def run(self) -> Outcome:
        with _other_errors_are_broken_promises(), crash_hook(self._on_crash_point):
            lives = 0
            while not self._live():
                lives += 1
                hold("liveness", lives < self.max_lives, f"{self.max_lives} lives were not enough")
            self._check_end()
            self._check_variation()
        self.outcome.results = sum(table.num_rows for table in self.promises.expected.tables["results"])
        self.outcome.late = sum(table.num_rows for table in self.promises.expected.tables["late"])
        self.outcome.replays = self.promises.replays
        self.outcome.faults = self.store.faults
        self.outcome.features = features_of(self.workload)
        history = [stream for epoch in self.promises.expected.accepted.history for stream in epoch.values()]
        self.outcome.features |= {"an idle stream"} if any(s.idle for s in history) else set()
        self.outcome.features |= {"a row from the future"} if any(s.future for s in history) else set()
        self.outcome.features |= self.promises.migration_promises.features()
        self.outcome.features |= self.promises.changes_of_terms()
        return self.outcome

    def _live(self) -> bool:
        """Run one process until it ends, and check what it leaves; True if all epochs are committed."""
        self.outcome.lives += 1
        damage = self.store.rot() if not self.paused and self.store.draw_fault(self.rot_rate) else None
        # Damage is repaired when the life is over, before another process sees it.
        paused, self.life = (self.life, self.store.written), _Life(pausable=damage is None)
        self.store.written = []
        done = False
        try:
            done = self._run_epochs()
        except SimulatedCrash:
            # A machine with a paused process does not lose power.
            if self.chance.random() < 0.5 and not self.paused:
                self.store.lose_power()
        except OSError as error:
            if "simulated" not in str(error):
                raise
        except CheckpointError as error:
            if self._is_fenced():
                # Either the error says that it was fenced, or a file that it needs was deleted.
                self.outcome.fenced += 1
            elif damage is not None and not isinstance(error, FencedError):
                self.outcome.refused += 1
            else:
                raise
        if self.life.in_step:
            self._end_step(whole=False)
        self._check_life(damage)
        self.life, self.store.written = paused
        return done

    def _run_epochs(self) -> bool:
        lease = self._take_lease("driver")
        query = self._open(lease)
        self.promises.confirm(query.manifest.epoch)
        background = self.chance.choice(
            (self.workload.background_epochs, self.workload.background_epochs, 0, 1, None)
        )
        while query.manifest.epoch + 1 < len(self.workload.epochs):
            self._enter_epoch(query)
            self._request_migration(query)
            now = self._clock()
            query.run_epoch(self.workload.epochs[self.life.epoch], background_epochs=background, now=now)
            self.promises.confirm(query.manifest.epoch)
            if self._is_fenced():
                continue
            self.promises.migration_promises.add_manifest(query.manifest)
            self._check_published(query.manifest.epoch)
            self.promises.check_manifest(query.manifest)
            if self.chance.random() < self.stop_rate:
                lease.release()
                return False
        lease.release()
        return True

    def _take_lease(self, run: str) -> Lease:
        """Take the lease; if its holder has not ended, it is fenced."""
        lease = seize_lease(self.store, run)
        self.life.lease = lease.number
        return lease

    def _newest_lease(self) -> int:
        names = (n for n in self.store.inner.files if n.startswith("leases/") and n.endswith(".json"))
        return max((int(name[-17:-5]) for name in names), default=0)

    def _open(self, lease: Lease) -> InlineJoin:
        self.life.results = StoreSink(self.store, "results", lease.number)
        changes = self.chance.random() < self.change_rate
        asked = (self.workload.query, *self.workload.other_terms)
        return InlineJoin(
            self.chance.choice(asked) if changes else self.workload.query,
            self.workload.plan,
            settings=changed_settings(self.workload, self.chance) if changes else self.workload.settings,
            store=self.store,
            sink=self.life.results,
            late_sink=StoreSink(self.store, "late", lease.number) if self.workload.keeps_late else None,
            lease=lease,
        )

    def _enter_epoch(self, query: InlineJoin) -> None:
        """A driver is about to run the next epoch."""
        self.life.epoch = query.manifest.epoch + 1
        self.asked.setdefault(self.life.epoch, []).append(query.query)

    def _clock(self) -> int:
        """The wall-clock time, which may be wrong."""
        error_seconds = self.chance.choice((0, 0, 0, -3600, 3600, -86_400, 400 * 86_400))
        return START + (10 * self.life.epoch + 15 + error_seconds) * SECOND

    def _request_migration(self, query: InlineJoin) -> None:
        """Make the request of the workload before this epoch, if it has one; sometimes repeat one."""
        requests, epoch = self.workload.requests, self.life.epoch
        repeats = requests and self.chance.random() < 0.1 * self.change_rate
        if epoch in requests and epoch not in self.requested:
            request = requests[epoch]
        elif repeats:
            request = self.chance.choice(list(requests.values()))
        else:
            return
        self.requested.add(epoch)
        # A process that was paused may have begun the epoch already, without this request.
        self._expect_epoch()
        written = write_request(request)
        taken = False
        try:
            query.migrate(
                request.plan,
                request.strategy,
                background="auto" if request.background else "off",
                isolated=request.isolated,
            )
            taken = not self._is_fenced()
        finally:
            self.promises.migration_promises.add_request(written, taken=taken)

    def _on_crash_point(self, point: str) -> None:
        self.outcome.points.add(point)
        match point:
            case "after the intent is written":
                self._expect_epoch()
            case "before the step":
                self.store.written.clear()
                if self.life.results is not None:
                    self.life.results.staged.clear()
                self.life.in_step = True
                if not self._is_fenced():
                    self.promises.run(self.life.epoch)
            case "after the step":
                self._end_step(whole=True)
            case "after the sink prepared" if self.life.results is not None:
                self.promises.check_batch(self.life.epoch, self.life.results.staged)
            case "after the commit":
                self._add_manifest()
        self._maybe_read(1.0)
        self._maybe_pause(1.0)
        if self.store.draw_fault(self.crash_rate):
            self.store.faults["crashes"] += 1
            raise SimulatedCrash(point)

    def _expect_epoch(self) -> None:
        """The intent of an epoch is written: from now on its expected results are known."""
        if not self._is_fenced():
            name = intent_name(self.life.epoch)
            data = self.store.inner.files.get(name)
            if data is not None:
                asked = self.asked.get(self.life.epoch, [])
                self.promises.begin(decode_intent(data.to_pybytes(), name), asked)

    def _add_manifest(self) -> None:
        """An epoch was committed: other processes, while this one is paused, go on from there."""
        manifest = newest_manifest(self.store.inner)
        if manifest is not None:
            self.promises.migration_promises.add_manifest(manifest)

    def _is_fenced(self) -> bool:
        """Whether another process has taken over from the one that runs now."""
        return self.life.lease < self._newest_lease()

    def _before_call(self) -> None:
        """A process is about to call the store."""
        self.calls += 1
        hold("liveness", self.calls < _MAX_CALLS, f"{self.calls} calls of the store were not enough")
        self._maybe_read(_RATE_IN_CALLS)
        self._maybe_pause(_RATE_IN_CALLS)

    def _maybe_read(self, factor: float) -> None:
        if self.chance.random() < factor * self.move_rate:
            self.chance.choice(self.readers).move_away()

    def _maybe_pause(self, factor: float) -> None:
        if not self.life.pausable or self.paused >= _MAX_PAUSED:
            return
        if not self.store.draw_fault(factor * self.pause_rate):
            return
        self.store.faults["pauses"] += 1
        self.paused += 1
        if self.chance.random() < 0.3:
            self._collect_garbage()
        for _ in range(self.chance.choice((0, 1, 1, 2))):
            self._live()
        self.paused -= 1

    def _collect_garbage(self) -> None:
        """Run ``midstream gc --delete``."""
        paused, self.life = (self.life, self.store.written), _Life()
        self.store.written = []
        self.store.faults["garbage collections"] += 1
        try:
            lease = self._take_lease("gc")
            collect_garbage(self.store, lease, delete=True)
            lease.release()
        except SimulatedCrash:
            pass
        except OSError as error:
            if "simulated" not in str(error):
                raise
        except CheckpointError:
            if not self._is_fenced():
                raise
        self._check_life(None)
        self.life, self.store.written = paused

    def _end_step(self, *, whole: bool) -> None:
        self.life.in_step = False
        if not self._is_fenced():
            written = step_files(self.store.written)
            self.promises.check_replay(self.life.epoch, written, whole=whole)

    def _check_life(self, damage: Damage | None) -> None:
        if damage is not None:
            self.store.repair(damage)
            self.promises.forgive(damage.name)
        last = self.promises.check_store(self.store)
        manifest = newest_manifest(self.store.inner)
        deferred = None
        if manifest is not None:
            self.promises.migration_promises.add_manifest(manifest)
            self.promises.check_manifest(manifest)
            self.promises.check_state(self.store.inner, manifest)
            deferred = self.promises.deferred(self.store.inner, manifest)
        published = last < 0 or is_published(noted_epochs(self.store.inner), last)
        self._check_published(last if published else last - 1, deferred if published else None)

    def _check_published(self, last: int, deferred: pa.Table | None = None) -> None:
        for reader in self.readers:
            self.promises.check_published(reader, last, deferred)

    def _check_end(self) -> None:
        """Run an epoch without rows and without faults: it must delete everything that is not used."""
        self.store.stop_faults()
        self.life = _Life(pausable=False)
        query = self._open(self._take_lease("the last"))
        self._enter_epoch(query)
        query.run_epoch({}, background_epochs=self.workload.background_epochs, now=self._clock())
        manifest = query.manifest
        self.promises.migration_promises.add_manifest(manifest)
        self.promises.check_manifest(manifest)
        self.promises.check_litter(self.store.inner, manifest, self.store.inner.list(STAGED))
        self._check_published(manifest.epoch, self.promises.deferred(self.store.inner, manifest))

    def _check_variation(self) -> None:
        """The same rows under another plan, in other partitions and epochs.

        If windows have changed, results depend on the epochs: then only those of the run itself are known.
        """
        if len({query.windows for query in self.promises.expected.queries}) > 1:
            return
        self.life = _Life(pausable=False)
        accepted = self.promises.expected.accepted.tables(self.workload.query)
        asked = replace(self.workload.query, windows=self.promises.expected.queries[0].windows)
        other = vary(replace(self.workload, query=asked), accepted, self.chance)
        query = InlineJoin(other.query, other.plan, settings=other.settings, store=MemoryStore())
        got = pa.concat_tables([query.run_epoch(epoch) for epoch in other.epochs])
        late = sum(mark.late for mark in query.manifest.streams.values())
        hold("metamorphic", late == 0, f"{late} rows are late although they come in order")
        want = pa.concat_tables(self.promises.expected.tables["results"])
        try:
            assert_same_rows(got, want, f"results under {other}")
        except AssertionError as error:
            raise BrokenPromiseError("metamorphic", str(error)) from error


@contextmanager
def _other_errors_are_broken_promises() -> Iterator[None]:
    try:
        yield
    except BrokenPromiseError:
        raise
    except Exception as error:
        raise BrokenPromiseError("errors", f"{type(error).__name__}: {error}") from error
